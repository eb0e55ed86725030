"""`fedsash list`."""

from __future__ import annotations

import argparse
from textwrap import wrap
from typing import TYPE_CHECKING

from .. import terminal
from .common import OK, Commands

if TYPE_CHECKING:
    from ..config.registry import Make, Registry


def add(commands: Commands) -> None:
    """Add the command."""
    listing = commands.add_parser("list", help="what an experiment file can name, one line each", epilog=LIST)
    listing.add_argument(
        "kind", nargs="?", help="methods, servers, averages, samplings, ..., reproductions (default: all)"
    )
    listing.add_argument("name", nargs="?", help="one of these: what it does, its options and their defaults")
    listing.set_defaults(command=_list)


def _list(given: argparse.Namespace) -> int:
    if given.kind == "reproductions":
        terminal.say(_reproductions() if given.name is None else _reproduction(given.name))
        return OK
    from ..config.errors import check_known
    from ..config.registries import REGISTRIES, find

    if given.kind is not None:
        check_known(given.kind, [*REGISTRIES, "reproductions"], "there is no kind")
    if given.name is not None:
        registry = REGISTRIES[given.kind]
        terminal.say(_details(given.name, find(registry, given.name, registry.key), registry))
        return OK
    overviews = [_overview(registry) for title, registry in REGISTRIES.items() if given.kind in (None, title)]
    terminal.say("\n\n".join(overviews + ([_reproductions()] if given.kind is None else [])))
    return OK


def _overview(registry: Registry) -> str:
    """All things of a kind, one line each, below the key that chooses one of them."""
    from ..config.words import summary

    width = max(len(name) for name in registry.things)
    lines = [f"  {name:<{width}}  {summary(make)}" for name, make in registry.things.items()]
    return "\n".join([f"{registry.key}.name", *lines])


def _details(name: str, make: Make, registry: Registry) -> str:
    """A thing's docstring, and its options with their defaults."""
    from inspect import getdoc

    from ..config.registry import REQUIRED
    from ..config.words import describe, show

    rows = [("name", "a string", show(name))]
    for option in registry.options(name).values():
        default = "(required)" if option.default is REQUIRED else show(option.default)
        rows.append((option.name, describe(option.kind), "(not set)" if option.default is None else default))
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    table = [f"  {key:<{widths[0]}}  {kind:<{widths[1]}}  {default}" for key, kind, default in rows]
    return "\n".join(
        [f"{registry.key}.name = {show(name)}", "", getdoc(make) or "", "", "Options and defaults:", *table]
    )


def _reproductions() -> str:
    """All reproductions, one line each."""
    from ..reproductions import names, titles

    width = max(map(len, names()))
    return "\n".join(["fedsash reproduce", *(f"  {name:<{width}}  {title}" for name, title in titles().items())])


def _reproduction(name: str) -> str:
    """What a reproduction shows, what is doubtful about it, and its number of rounds at each scale."""
    from ..reproductions import load
    from ..sweeps import plan

    reproduction = load(name)
    lines = [reproduction.title, "", reproduction.shows, "", reproduction.note, "", "Scales:"]
    lines += [f"  {scale}: {plan(reproduction.plan(scale).runs)}" for scale in reproduction.scales]
    lines += ["", "Axes:", *(f"  {axis}: {', '.join(labels)}" for axis, labels in reproduction.axes.items())]
    return "\n".join(
        line for text in lines for line in wrap(text, 100, subsequent_indent="    " if text[:1] == " " else "") or [""]
    )


LIST = """\
kinds: methods, aggregations, servers, averages, samplings, schedules, local_schedules, partitions, models, datasets,
transforms, tasks, metrics, engines; schedulers and client_windows, for fedsash network; and reproductions, for
fedsash reproduce

examples:
  fedsash list
  fedsash list servers
  fedsash list servers adam
  fedsash list schedulers fedwindow
  fedsash list reproductions ima-table-1
"""
