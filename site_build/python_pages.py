"""The pages of the Python reference: every public name of fedsash, by the room in which it is at home."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fedsash
from fedsash.system.lazy import LazyNames
from site_build.signatures import accepted

FOLDER = "reference/python"


@dataclass(frozen=True)
class Room:
    """A page: its title, a sentence, the modules whose public names it has, and a public module that it has whole."""

    title: str
    about: str
    homes: tuple[str, ...]
    whole: str = ""


ROOMS = {
    "federation": Room(
        "Federations",
        "A federation puts data, model, method and averages together, and makes rounds.",
        ("federation", "state", "broadcast", "basics.sharing", "basics.layout"),
    ),
    "runs": Room(
        "Runs and experiments",
        "A run trains a federation, records it and saves it. An experiment is the content of an experiment file.",
        ("runs", "lab.config", "lab.studies.opened"),
    ),
    "averages": Room("Averages", "Means of the models of a training, and a tracker for any loop.", ("averages",)),
    "methods": Room("Methods", "What changes in a local step, and what is remembered for it.", ("methods",)),
    "local": Room("Local training", "How a client trains, and its optimisers.", ("local",)),
    "schedules": Room("Schedules", "Learning rates by round and by local step.", ("schedules",)),
    "aggregation": Room("Aggregation", "How the clients' uploads become one update.", ("aggregation",)),
    "servers": Room("Server optimisers", "How the update moves the global model.", ("servers",)),
    "sampling": Room("Sampling", "Which clients take part in a round.", ("sampling",)),
    "data": Room("Data and partitions", "Samples, where they come from, and who holds them.", ("data",)),
    "models": Room("Models", "The networks that an experiment file can name.", ("models",), "models"),
    "tasks": Room("Tasks and metrics", "What models learn, and how they are judged.", ("tasks",), "tasks"),
    "evaluation": Room("Evaluation", "When and on what models are judged.", ("evaluation",)),
    "executors": Room(
        "Engines and clients",
        "Where clients live, and how they are asked to train.",
        ("executors", "executors.clients", "exchange"),
    ),
    "callbacks": Room("Callbacks", "What else happens in a run.", ("runs.callbacks",)),
    "network": Room("Simulated networks", "Clients with speeds and links, and schedulers.", (), "network"),
    "flower": Room("Flower", "Averages in a Flower app, and clients on the nodes of a federation.", (), "flower"),
    "testing": Room(
        "Testing", "Small federations, and the identities that things of your own must keep.", (), "testing"
    ),
    "errors": Room("Errors", "Errors that a user can correct: one line each.", ("settings.errors",)),
}


def public() -> dict[str, list[str]]:
    """The public names of fedsash, by the module in which they are at home; modules are left out."""
    homes = LazyNames("fedsash", fedsash.__file__).homes
    found: dict[str, list[str]] = defaultdict(list)
    for name, home in homes.items():
        if home:
            found[home].append(name)
    return dict(found)


def objects(room: Room) -> Iterator[str]:
    """The full names of all that a page shows."""
    names = public()
    for home in room.homes:
        yield from (f"fedsash.{name}" for name in names[home])
    if room.whole:
        module, first = getattr(fedsash, room.whole), {name for own in names.values() for name in own}
        others = (name for name in module.__all__ if name not in first)
        yield from (f"fedsash.{room.whole}.{name}" for name in others if shown(getattr(module, name)))


def shown(value: Any) -> bool:
    """Whether a name of a module is a class or a function, and not a constant such as a registry."""
    return inspect.isclass(value) or inspect.isfunction(value)


def pages() -> dict[str, str]:
    """The content of each page, by its place. mkdocstrings fills in what stands behind `:::`."""
    found = {f"{FOLDER}/index.md": _index()}
    for name, room in ROOMS.items():
        parts = [f"# {room.title}", room.about, *(f"::: {each}" for each in objects(room))]
        found[f"{FOLDER}/{name}.md"] = "\n\n".join(parts) + "\n"
    return found


def _index() -> str:
    lines = ["# Python", "", "All names below are those of `import fedsash as fs`.", ""]
    for name, room in ROOMS.items():
        names = ", ".join(f"[`{each.removeprefix('fedsash.')}`]({name}.md#{each})" for each in objects(room))
        lines += [f"**[{room.title}]({name}.md).** {room.about} {names}", ""]
    return "\n".join(lines)


def written_out(page: str) -> str:
    """A page with the signatures and docstrings that mkdocstrings would fill in, as plain Markdown."""
    lines = page.splitlines()
    return "\n".join(_described(line[4:]) if line.startswith("::: ") else line for line in lines) + "\n"


def _described(full: str) -> str:
    """A class with its methods, or a function: signatures and docstrings."""
    value: Any = fedsash
    for part in full.split(".")[1:]:
        value = getattr(value, part)
    parts = [f"## {full}", _signature(full.rpartition(".")[2], value), inspect.getdoc(value) or ""]
    members = vars(value).items() if inspect.isclass(value) else ()
    for name, member in members:
        member = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(member) and member.__doc__:
            parts += [f"### {name}", _signature(name, member), inspect.getdoc(member) or ""]
    return "\n\n".join(filter(None, parts))


class _Bare(str):
    """An annotation that a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(name: str, value: Any) -> str:
    try:
        given = inspect.signature(value)
    except (TypeError, ValueError):  # a class without a signature of its own, such as an exception
        return ""
    parameters = [one.replace(annotation=_bare(one.annotation)) for one in given.parameters.values()]
    shown = given.replace(parameters=parameters, return_annotation=_bare(given.return_annotation))
    return f"```python\n{name}{shown}\n```"


def _bare(annotation: Any) -> Any:
    return _Bare(accepted(annotation)) if isinstance(annotation, str) else annotation
