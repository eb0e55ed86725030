"""The pages of the Python reference: every public name of fedsash, by the module that has it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import fedsash
from site_build.signatures import accepted

FOLDER = "reference/python"


@dataclass(frozen=True)
class Page:
    """A page: its title, a sentence, and the public module that it shows; empty for the names of daily use."""

    title: str
    about: str
    module: str


PAGES = {
    "daily": Page("Names of daily use", "What `fs.` itself has.", ""),
    "averages": Page("Averages", "Means of the models of a training, and a tracker for any loop.", "averages"),
    "methods": Page("Methods", "What changes in a round: methods, and rules for the clients' uploads.", "methods"),
    "schedules": Page("Schedules", "Learning rates by round and by local step.", "schedules"),
    "optimisers": Page("Optimisers", "How clients move, and how the update moves the global model.", "optimisers"),
    "sampling": Page("Sampling", "Which clients take part in a round.", "sampling"),
    "partitions": Page("Partitions", "How samples are dealt out to clients.", "partitions"),
    "data": Page("Data", "Samples, and where they come from.", "data"),
    "models": Page("Models", "The networks that an experiment file can name.", "models"),
    "tasks": Page("Tasks and metrics", "What models learn, and how they are judged.", "tasks"),
    "evaluation": Page("Evaluation", "When and on what models are judged, and what a run records.", "evaluation"),
    "engines": Page("Engines", "Where clients train.", "engines"),
    "runs": Page("Runs", "A run trains a federation, records it and saves it; callbacks.", "runs"),
    "network": Page("Simulated networks", "Clients with speeds and links, and schedulers.", "network"),
    "flower": Page("Flower", "Averages in a Flower app, and clients on the nodes of a federation.", "flower"),
    "extend": Page("To extend fedsash", "What things of your own build on.", "extend"),
    "testing": Page("Testing", "Small federations, and the identities that things of your own must keep.", "testing"),
    "errors": Page("Errors", "Errors that a user can correct: one line each.", "errors"),
}


def objects() -> dict[str, list[str]]:
    """The full names of all that each page shows. What authors extend is on its own page, all else on its first."""
    of_extend = {id(getattr(fedsash.extend, name)) for name in fedsash.extend.__all__}
    listed: set[int] = set()
    names: dict[str, list[str]] = {}
    for key, page in PAGES.items():
        module: Any = fedsash
        prefix = "fedsash"
        if page.module:
            module = getattr(fedsash, page.module)
            prefix = f"fedsash.{page.module}"
        names[key] = []
        for name in module.__all__:
            value = getattr(module, name)
            elsewhere = id(value) in of_extend and page.module not in ("", "extend")
            if shown(value) and not elsewhere and id(value) not in listed:
                listed.add(id(value))
                names[key].append(f"{prefix}.{name}")
    return names


def shown(value: Any) -> bool:
    """Whether a name of a module is a class or a function, and not a constant such as a registry."""
    return inspect.isclass(value) or inspect.isfunction(value)


def pages() -> dict[str, str]:
    """The content of each page, by its place. mkdocstrings fills in what stands behind `:::`."""
    names = objects()
    texts = {f"{FOLDER}/index.md": _index(names)}
    for key, page in PAGES.items():
        parts = [f"# {page.title}", page.about, *(f"::: {name}" for name in names[key])]
        texts[f"{FOLDER}/{key}.md"] = "\n\n".join(parts) + "\n"
    return texts


def _index(names: dict[str, list[str]]) -> str:
    """The page that lists all others, with a link for each name."""
    lines = ["# Python", "", "All names below are those of `import fedsash as fs`.", ""]
    for key, page in PAGES.items():
        links = [f"[`{name.removeprefix('fedsash.')}`]({key}.md#{name})" for name in names[key]]
        lines += [f"**[{page.title}]({key}.md).** {page.about} {', '.join(links)}", ""]
    return "\n".join(lines)


def written_out(page: str) -> str:
    """A page with the signatures and docstrings that mkdocstrings would fill in, as plain Markdown."""
    lines = []
    for line in page.splitlines():
        if line.startswith("::: "):
            line = _described(line.removeprefix("::: "))
        lines.append(line)
    return "\n".join(lines) + "\n"


def _described(full: str) -> str:
    """A class with its methods, or a function: signatures and docstrings."""
    value: Any = fedsash
    for part in full.split(".")[1:]:
        value = getattr(value, part)
    parts = [f"## {full} {{#{full}}}", _signature(full.rpartition(".")[2], value), inspect.getdoc(value) or ""]
    members = vars(value) if inspect.isclass(value) else {}
    for name, member in members.items():
        member = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(member) and member.__doc__:
            parts += [f"### {name} {{#{full}.{name}}}", _signature(name, member), inspect.getdoc(member) or ""]
    return "\n\n".join(part for part in parts if part)


class _Bare(str):
    """An annotation that a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(name: str, value: Any) -> str:
    """The signature of a class or a function as a block of code; "" if it has none."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # a class without a signature of its own, such as an exception
        return ""
    parameters = []
    for parameter in signature.parameters.values():
        parameters.append(parameter.replace(annotation=_bare(parameter.annotation)))
    signature = signature.replace(parameters=parameters, return_annotation=_bare(signature.return_annotation))
    return f"```python\n{name}{signature}\n```"


def _bare(annotation: Any) -> Any:
    """An annotation without quotes, with all that its field accepts."""
    if isinstance(annotation, str):
        return _Bare(accepted(annotation))
    return annotation
