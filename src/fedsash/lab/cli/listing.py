"""`fedsash list`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from ...runs import terminal
from .arguments import Parser, add_options
from .common import OK

REPRODUCTIONS = ("reproductions", "reproduction")


def add(parser: Parser) -> None:
    """Add the arguments."""
    parser.epilog = LIST
    parser.set_defaults(command=_list)
    line = "a table, a key or a name: methods, scaffold, local, local.lr, ... (default: all)"
    parser.add_argument("word", nargs="?", help=line)
    parser.add_argument("name", nargs="?", help="one of these: what it does, its options and their defaults")
    add_options(parser, "--json")


def _list(args: Namespace) -> int:
    args.answer = _entries([word for word in (args.word, args.name) if word is not None])
    separator = "\n" if "takes" in args.answer[0] else "\n\n"
    terminal.say(separator.join(_text(entry) for entry in args.answer))
    return OK


def _entries(words: Sequence[str]) -> list[Mapping[str, Any]]:
    """What the words name: entries of the catalogue, or reproductions."""
    from ..config.catalogue import entries, everything
    from ..papers import names

    if not words:
        return [*everything(), _reproductions()]
    if words[0] in REPRODUCTIONS and len(words) == 1:
        return [_reproductions()]
    if words[0] in REPRODUCTIONS:
        return [_reproduction(words[1])]
    if len(words) == 1 and words[0] in names():
        return [_reproduction(words[0])]
    return list(entries(words))


def _text(entry: Mapping[str, Any]) -> str:
    """An entry of the catalogue, or a reproduction, as text."""
    if "things" in entry:
        return "\n".join([entry["key"], *_columns(entry["things"].items())])
    if "takes" in entry:
        return _key_text(entry)
    if "scales" in entry:
        return _reproduction_text(entry)
    return _table_text(entry)


def _columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of texts below each other."""
    rows = list(rows)
    widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def _table_text(entry: Mapping[str, Any]) -> str:
    """A table, or a thing that a table chooses by its name: its docstring, its keys and their defaults."""
    from ..config.words import show

    rows = [(_last_part(key["key"]), key["takes"], key["default"]) for key in entry["keys"]]
    head = f"[{entry['key']}]"
    if "name" in entry:
        name = show(entry["name"])
        rows.insert(0, ("name", "a string", name))
        head = f"{entry['key']}.name = {name}"
    return "\n".join([head, "", entry["about"], "", "Options and defaults:", *_columns(rows)])


def _key_text(entry: Mapping[str, Any]) -> str:
    """One key: its default, what it takes, and what it means."""
    takes = entry["takes"]
    if entry["of"]:
        takes = f"{', '.join(entry['of'])}: {takes}"
    meaning = wrap(entry["meaning"], 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([f"{entry['key']} = {entry['default']}  ({takes})", *meaning])


def _last_part(path: str) -> str:
    """A key without the table that it is in."""
    return path.rpartition(".")[2]


def _reproductions() -> Mapping[str, Any]:
    """All reproductions and their titles."""
    from ..papers import titles

    return {"key": "fedsash reproduce", "things": titles()}


def _reproduction(name: str) -> Mapping[str, Any]:
    """What a reproduction shows, what is doubtful about it, and its number of rounds at each scale."""
    from ..papers import load
    from ..papers.todo import cost_of
    from ..sweeps import plan

    paper = load(name)
    scales = {}
    for scale in ("full", *paper.scales):
        runs = paper.plan(scale).runs
        cost = cost_of(runs)
        scales[scale] = str(plan(runs))
        if cost.known:
            scales[scale] += f"; {cost}"
    return {
        "name": name,
        "title": paper.title,
        "shows": paper.shows,
        "note": " ".join([paper.note, *(note.text for note in paper.notes)]),
        "scales": scales,
        "axes": paper.labels,
    }


def _reproduction_text(entry: Mapping[str, Any]) -> str:
    """A reproduction as text."""
    texts = [entry["title"], "", entry["shows"], "", entry["note"], "", "Scales:"]
    texts += [f"  {scale}: {rounds}" for scale, rounds in entry["scales"].items()]
    texts += ["", "Axes:"]
    texts += [f"  {axis}: {'; '.join(labels)}" for axis, labels in entry["axes"].items()]
    lines: list[str] = []
    for text in texts:
        indent = "    " if text.startswith(" ") else ""
        lines += wrap(text, 100, subsequent_indent=indent) or [""]
    return "\n".join(lines)


LIST = """\
A word is the name of a table (local, data, evaluation), of a key (local.lr, every), of anything that a key can name
(scaffold, window), or of a group of these: methods, aggregations, servers, averages, samplings, optimisers, schedules,
local_schedules, partitions, models, datasets, transforms, tasks, metrics, engines, callbacks; schedulers and
client_windows, for fedsash network; and reproductions, for fedsash reproduce.

examples:
  fedsash list                                  everything
  fedsash list methods                          or: fedsash list method
  fedsash list methods scaffold                 or: fedsash list scaffold
  fedsash list local
  fedsash list evaluation.every                 or: fedsash list every
  fedsash list reproductions ima-table-1
"""
