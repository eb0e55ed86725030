"""`fedsash list`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .common import OK, Commands

if TYPE_CHECKING:
    from ..config.registry import Make, Room


def add(commands: Commands) -> None:
    """Add the command."""
    listing = commands.add_parser("list", help="what an experiment file can name, one line each", epilog=LIST)
    listing.add_argument("room", nargs="?", help="methods, servers, averages, samplings, ... (default: all)")
    listing.add_argument("name", nargs="?", help="one of them: what it does, its options and their defaults")
    listing.set_defaults(command=_list)


def _list(given: argparse.Namespace) -> int:
    from ..config.errors import located
    from ..config.registry import ROOMS

    if given.room is not None and given.room not in ROOMS:
        raise ValueError(f"there is no room {given.room!r}; there are {', '.join(ROOMS)}")
    if given.name is not None:
        room = ROOMS[given.room]
        with located(_table(room)):
            print(_details(given.name, room.find(given.name), room))
        return OK
    print("\n\n".join(_overview(room) for title, room in ROOMS.items() if given.room in (None, title)))
    return OK


def _overview(room: Room) -> str:
    """A room's things, one line each, under the key that chooses one of them."""
    from ..config.registry import summary

    width = max(len(name) for name in room.things)
    lines = [f"  {name:<{width}}  {summary(make)}" for name, make in room.things.items()]
    return "\n".join([f"{_table(room)}.name", *lines])


def _details(name: str, make: Make, room: Room) -> str:
    """A thing's docstring, and its options with their defaults."""
    from inspect import getdoc

    from ..config.registry import REQUIRED, describe, options, show

    rows = [("name", "a string", show(name))]
    for option in options(make).values():
        default = "(required)" if option.default is REQUIRED else show(option.default)
        rows.append((option.name, describe(option.kind), "(not set)" if option.default is None else default))
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    table = [f"  {key:<{widths[0]}}  {kind:<{widths[1]}}  {default}" for key, kind, default in rows]
    return "\n".join(
        [f"{_table(room)}.name = {show(name)}", "", getdoc(make) or "", "", "Options and defaults:", *table]
    )


def _table(room: Room) -> str:
    return room.key.replace("*", "NAME")


LIST = """\
rooms: methods, aggregations, servers, averages, samplings, schedules, local_schedules, partitions, models, datasets

examples:
  fedsash list
  fedsash list servers
  fedsash list servers adam
"""
