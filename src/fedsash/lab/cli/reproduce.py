"""`fedsash reproduce`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runs import terminal
from .common import OK, RUNS, WRONG, Commands, add_json, add_set, add_sweep_options, ended, place

if TYPE_CHECKING:
    from rich.table import Table

DATA = Path("data")
LEDGER = Path("results")


def add(commands: Commands) -> None:
    """Add the command."""
    line = "reproduce a paper's table or figure, with published and measured numbers"
    reproduce = commands.add_parser("reproduce", help=line, epilog=REPRODUCE)
    line = "a table or figure, such as ima-table-1 (see fedsash list reproductions), or FILE.py[:NAME], one of your own"
    reproduce.add_argument("reproduction", nargs="?", help=line)
    reproduce.add_argument("--scale", default="full", help="full (the paper's setting), small or tiny (default: full)")
    line = "folder that has a folder with each data set's name (default: data)"
    reproduce.add_argument("--data", type=Path, default=DATA, metavar="DIR", help=line)
    reproduce.add_argument(
        "--out", type=place, metavar="DIR", help="folder for results (default: runs/REPRODUCTION-SCALE)"
    )
    line = "only the runs of one printed number, ROW / COLUMN or ROW / COLUMN / PART of it; can be repeated"
    reproduce.add_argument("--cell", action="append", default=[], metavar="NAME", help=line)
    line = "print which printed numbers are not run yet, and what they cost: the best evidence for the time first"
    reproduce.add_argument("--todo", action="store_true", help=line)
    line = "take the rows in a folder, such as RUN/rows, into the ledger"
    reproduce.add_argument("--merge", type=place, metavar="FOLDER", help=line)
    line = "the folder of the ledger, for --todo and --merge (default: results)"
    reproduce.add_argument("--ledger", type=place, default=LEDGER, metavar="DIR", help=line)
    add_set(reproduce)
    add_sweep_options(reproduce)
    add_json(reproduce)
    reproduce.set_defaults(command=_reproduce)


def _reproduce(given: argparse.Namespace) -> int:
    from ...settings.errors import SettingError
    from ..papers import load
    from ..papers.ledger import find
    from ..papers.reproduce import ROWS, Order, reproduce

    if given.todo:
        return _todo(given)
    if given.merge is not None:
        return _merge(given)
    if given.reproduction is None:
        raise SettingError("", "reproduction", "", "must be a table or figure: fedsash list reproductions has them")
    reproduction = load(given.reproduction)
    cells = [cell for name in given.cell for cell in find(reproduction, name)]
    out = given.out or RUNS / f"{reproduction.name}-{given.scale}"
    order = Order(reproduction, given.scale, given.only, given.set, given.own_code, given.data, cells)
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
    if done.claims:
        terminal.say("\nWhat the paper claims, and what these runs say of it:")
    for line in done.claims:
        terminal.show(line)
    terminal.say(f"\nruns, tables, analyses and pictures: {out}")
    if done.rows:
        terminal.say(f"{done.rows} of the paper's numbers, for a ledger: fedsash reproduce --merge {out / ROWS}")
    if done.nothing:
        terminal.complain(f"fedsash: nothing was trained: no run has its data below --data {given.data}")
        return WRONG
    return ended(done.failed, done.signal)


def _todo(given: argparse.Namespace) -> int:
    """Print what is left to run."""
    from ..papers import load, reproductions
    from ..papers.ledger import Ledger
    from ..papers.merging import check_ledger
    from ..papers.todo import todo

    asked = [load(given.reproduction)] if given.reproduction else list(reproductions().values())
    check_ledger(given.ledger, "--ledger")
    if not given.ledger.exists():
        terminal.complain(f"{given.ledger} is not there: nothing is run yet")
    tasks = todo(asked, Ledger(given.ledger), given.data)
    given.answer = [task.record() for task in tasks]
    terminal.say("numbers, cost, command; the most numbers for the time first")
    open_numbers = sum(len(task.cells) for task in tasks)
    for task in tasks:
        why = f"; {task.missing}" if task.missing else ""
        terminal.say(f"{len(task.cells):3}  {task.cost}{why}: {task.command}")
    terminal.say(f"\n{open_numbers:,} printed numbers in {len(tasks)} tasks are not run yet at their setting")
    return OK


def _merge(given: argparse.Namespace) -> int:
    """Take rows into the ledger, and print what came of each."""
    from ..papers import claims, reproductions
    from ..papers.ledger import Ledger
    from ..papers.merging import merge

    merged = merge(given.merge, Ledger(given.ledger), reproductions().values(), claims())
    given.answer = {"ledger": str(given.ledger), "taken": merged.taken, "lines": merged.lines}
    for line in merged.lines:
        terminal.say(line)
    if not merged.taken:
        terminal.complain(f"fedsash: no row was taken from {given.merge}")
        return WRONG
    terminal.say(f"{merged.taken} rows taken into {given.ledger}")
    return OK


def _command(given: argparse.Namespace) -> str:
    """The command that gives the same results again."""
    words = ["fedsash", "reproduce", given.reproduction, "--scale", given.scale]
    words += [word for name in given.cell for word in ("--cell", name)]
    words += [word for choice in given.only for word in ("--only", choice)]
    words += [word for setting in given.set for word in ("--set", setting)]
    words += ["--data", str(given.data)] if given.data != DATA else []
    words += ["--own-code"] if given.own_code else []
    return shlex.join(words)


def _table(filled: dict[str, Any]) -> Table:
    """A filled table for the terminal. A row of the paper takes up to three lines."""
    from ...runs.table import empty_table

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
  fedsash reproduce ima-table-1 --cell "CIFAR-10 CNN a=0.1 / FedAvg / +IMA"    one number
  fedsash reproduce --todo --data data                 what is not run yet, and what it costs
  fedsash reproduce --merge runs/ima-table-1-full/rows      rows of yours, or of somebody else, into results/
  fedsash reproduce ima-figure-6 --scale tiny
  fedsash reproduce fedswa-table-3 --scale small --set 'data={name="cifar10"}' --out runs/fedswa-cifar10

The folder of a data set is DIR/NAME (see docs/how-to/data.md). Runs without their data are left out. If the command was
stopped, the same command continues and trains nothing twice. A Python file of your own is run; of several reproductions
that it defines, NAME says which.
"""
