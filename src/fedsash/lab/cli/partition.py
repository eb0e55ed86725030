"""`fedsash partition`."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import terminal
from .common import OK, Commands, add_set


def add(commands: Commands) -> None:
    """Add the command."""
    partition = commands.add_parser("partition", help="show which client holds which labels", epilog=PARTITION)
    partition.add_argument("experiment", type=Path, help="experiment file (TOML)")
    add_set(partition)
    partition.add_argument("--out", dest="picture", type=Path, help="also draw a picture into this file (.png, .svg)")
    partition.set_defaults(command=_partition)


def _partition(given: argparse.Namespace) -> int:
    from ..config import load
    from ..config.errors import prefixed
    from ..partition import record, table
    from ..pictures.paper import draw
    from ..pictures.partition import partition

    experiment = load(given.experiment, given.set, given.own_code)
    with prefixed(given.experiment):
        data = experiment.federated_data()
    terminal.say(table(data))
    if given.picture is not None:
        draw(partition(record(data)), given.picture)
        terminal.say(f"\npicture: {given.picture}")
    return OK


PARTITION = """\
examples:
  fedsash partition experiment.toml
  fedsash partition experiment.toml --out clients.png
  fedsash partition experiment.toml --set partition.alpha=0.01
"""
