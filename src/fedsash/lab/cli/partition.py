"""`fedsash partition`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...runs import terminal
from .common import OK, Commands, add_federation, add_json, add_set, check_picture, load_given, place


def add(commands: Commands) -> None:
    """Add the command."""
    partition = commands.add_parser("partition", help="show which client holds which labels", epilog=PARTITION)
    partition.add_argument("experiment", type=Path, nargs="?", help="experiment file (TOML)")
    add_set(partition)
    add_federation(partition)
    partition.add_argument(
        "--out", dest="picture", type=place, help="also draw a picture into this file (.png, .svg, .pdf)"
    )
    add_json(partition)
    partition.set_defaults(command=_partition)


def _partition(given: argparse.Namespace) -> int:
    from ...runs import plot_clients
    from ...runs.partition import record, table
    from ..config.errors import prefixed

    if given.picture is not None:
        check_picture(given.picture)
    experiment = load_given(given)
    with prefixed(given.experiment or given.federation):
        data = experiment.federated_data()
    given.answer = record(data)
    terminal.say(table(data))
    if given.picture is not None:
        plot_clients(data).save(given.picture)
        terminal.say(f"\npicture: {given.picture}")
    return OK


PARTITION = """\
examples:
  fedsash partition experiment.toml
  fedsash partition experiment.toml --out clients.png
  fedsash partition experiment.toml --set partition.alpha=0.01
"""
