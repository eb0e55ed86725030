"""`fedsash list`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from ...runs import terminal
from .common import OK, Commands, add_json

REPRODUCTIONS = ("reproductions", "reproduction")


def add(commands: Commands) -> None:
    """Add the command."""
    listing = commands.add_parser("list", help="what an experiment file can say, one line each", epilog=LIST)
    line = "a table, a key or a name: methods, scaffold, local, local.lr, ... (default: all)"
    listing.add_argument("word", nargs="?", help=line)
    listing.add_argument("name", nargs="?", help="one of these: what it does, its options and their defaults")
    add_json(listing)
    listing.set_defaults(command=_list)


def _list(given: argparse.Namespace) -> int:
    from ..papers import names

    words = [word for word in (given.word, given.name) if word is not None]
    if words and words[0] in REPRODUCTIONS:
        given.answer = [_of_reproductions() if len(words) == 1 else _reproduction(words[1])]
    elif len(words) == 1 and words[0] in names():
        given.answer = [_reproduction(words[0])]
    else:
        from ..config.catalogue import everything, found

        given.answer = found(words) if words else [*everything(), _of_reproductions()]
    terminal.say(("\n" if "takes" in given.answer[0] else "\n\n").join(map(_text, given.answer)))
    return OK


def _text(entry: Mapping[str, Any]) -> str:
    """An entry of the catalogue, or a reproduction, as text."""
    if "things" in entry:
        return "\n".join([entry["key"], *_columns(entry["things"].items())])
    if "takes" in entry:
        return _key(entry)
    return _reproduced(entry) if "scales" in entry else _table(entry)


def _columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of texts below each other."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _table(entry: Mapping[str, Any]) -> str:
    """A table, or a thing that a table chooses by its name: its docstring, its keys and their defaults."""
    from ..config.words import show

    name, rows = entry.get("name"), [(_last(key["key"]), key["takes"], key["default"]) for key in entry["keys"]]
    head = f"[{entry['key']}]" if name is None else f"{entry['key']}.name = {show(name)}"
    rows = rows if name is None else [("name", "a string", show(name)), *rows]
    return "\n".join([head, "", entry["about"], "", "Options and defaults:", *_columns(rows)])


def _key(entry: Mapping[str, Any]) -> str:
    """One key: its default, what it takes, and what it means."""
    of = f"{', '.join(entry['of'])}: " if entry["of"] else ""
    means = wrap(entry["meaning"], 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([f"{entry['key']} = {entry['default']}  ({of}{entry['takes']})", *means])


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _of_reproductions() -> Mapping[str, Any]:
    """All reproductions and their titles."""
    from ..papers import titles

    return {"key": "fedsash reproduce", "things": titles()}


def _reproduction(name: str) -> Mapping[str, Any]:
    """What a reproduction shows, what is doubtful about it, and its number of rounds at each scale."""
    from ..papers import load
    from ..papers.todo import cost_of
    from ..sweeps import plan

    found = load(name)
    scales = {}
    for scale in ("full", *found.scales):
        runs = found.plan(scale).runs
        cost = cost_of(runs)
        scales[scale] = f"{plan(runs)}; {cost}" if cost.known else str(plan(runs))
    return {
        "name": name,
        "title": found.title,
        "shows": found.shows,
        "note": found.note,
        "scales": scales,
        "axes": found.labels,
    }


def _reproduced(entry: Mapping[str, Any]) -> str:
    lines = [entry["title"], "", entry["shows"], "", entry["note"], "", "Scales:"]
    lines += [f"  {scale}: {rounds}" for scale, rounds in entry["scales"].items()]
    lines += ["", "Axes:", *(f"  {axis}: {', '.join(labels)}" for axis, labels in entry["axes"].items())]
    return "\n".join(
        line for text in lines for line in wrap(text, 100, subsequent_indent="    " if text[:1] == " " else "") or [""]
    )


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
