"""`fedsash reproduce`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import terminal
from .common import RUNS, WRONG, Commands, add_json, add_set, add_sweep_options, ended, place

if TYPE_CHECKING:
    from rich.table import Table

DATA = Path("data")


def add(commands: Commands) -> None:
    """Add the command."""
    line = "reproduce a paper's table or figure, with published and measured numbers"
    reproduce = commands.add_parser("reproduce", help=line, epilog=REPRODUCE)
    reproduce.add_argument(
        "reproduction", help="a table or figure, such as ima-table-1 (see fedsash list reproductions), or a file.toml"
    )
    reproduce.add_argument("--scale", default="full", help="full (the paper's setting), small or tiny (default: full)")
    line = "folder that has a folder with each data set's name (default: data)"
    reproduce.add_argument("--data", type=Path, default=DATA, metavar="DIR", help=line)
    reproduce.add_argument(
        "--out", type=place, metavar="DIR", help="folder for results (default: runs/REPRODUCTION-SCALE)"
    )
    add_set(reproduce)
    add_sweep_options(reproduce)
    add_json(reproduce)
    reproduce.set_defaults(command=_reproduce)


def _reproduce(given: argparse.Namespace) -> int:
    from ..reproductions import load
    from ..reproductions.reproduce import Order, reproduce

    reproduction = load(given.reproduction)
    out = given.out or RUNS / f"{reproduction.name}-{given.scale}"
    order = Order(reproduction, given.scale, given.only, given.set, given.own_code, given.data)
    where = {"jobs": given.jobs, "cluster": given.cluster}
    done = reproduce(order, out, **where, progress=given.progress, command=_command(given))
    given.answer = {"folder": str(out), "tables": done.tables, "missing": done.missing, "failed": done.failed}
    for filled in done.tables:
        terminal.say()
        terminal.show(_table(filled))
        for line in (*filled.get("missing", ()), *filled.get("chosen", ())):
            terminal.show(line)
    terminal.say()
    terminal.show(done.note)
    for line in done.missing:
        terminal.say(line)
    terminal.say(f"\nruns, tables, analyses and pictures: {out}")
    if done.nothing:
        terminal.complain(f"fedsash: nothing was trained: no run has its data below --data {given.data}")
        return WRONG
    return ended(done.failed, done.signal)


def _command(given: argparse.Namespace) -> str:
    """The command that gives the same results again."""
    words = ["fedsash", "reproduce", given.reproduction, "--scale", given.scale]
    words += [word for choice in given.only for word in ("--only", choice)]
    words += [word for setting in given.set for word in ("--set", setting)]
    words += ["--data", str(given.data)] if given.data != DATA else []
    words += ["--own-code"] if given.own_code else []
    return shlex.join(words)


def _table(filled: dict[str, Any]) -> Table:
    """A filled table for the terminal. A row of the paper takes up to three lines."""
    from ..table import empty_table

    table = empty_table()
    table.title, table.title_justify, table.title_style = filled["title"], "left", "bold"
    for i, column in enumerate(filled["columns"]):
        table.add_column(
            column, overflow="fold", no_wrap=i == 1, justify="left" if i < 2 or filled["columns"][1] else "right"
        )
    before = None
    for row, *cells in filled["rows"]:
        style = {"paper": "dim", "here": "bold"}.get(cells[0], "")
        table.add_row("" if row == before else row, *cells, style=style)
        before = row
    return table


REPRODUCE = """\
examples:
  fedsash list reproductions
  fedsash list reproductions ima-table-1
  fedsash reproduce ima-table-1 --data data --only "row=FMNIST #C=2"
  fedsash reproduce ima-figure-6 --scale tiny
  fedsash reproduce fedswa-table-3 --scale small --set 'data={name="cifar10"}' --out runs/fedswa-cifar10

The folder of a data set is DIR/NAME (see docs/how-to/data.md). Runs without their data are left out. If the command was
stopped, the same command continues and trains nothing twice.
"""
