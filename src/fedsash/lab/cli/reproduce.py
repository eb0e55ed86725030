"""`fedsash reproduce`."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...runs import terminal
from ...settings.errors import SettingError
from .arguments import Parser, add_options, nonempty_path
from .common import OK, RUNS, WRONG, report_failures

if TYPE_CHECKING:
    from rich.table import Table

    from ..papers.ledger import Cell

DATA = Path("data")


def add(parser: Parser) -> None:
    """Add the arguments."""
    parser.epilog = REPRODUCE
    parser.set_defaults(command=_reproduce)
    line = "a table or figure, such as ima-table-1 (see fedsash list reproductions), or FILE.py[:NAME], one of your own"
    parser.add_argument("reproduction", nargs="?", help=line)
    parser.add_argument("--scale", default="full", help="full (the paper's setting), small or tiny (default: full)")
    line = "folder that has a folder with each data set's name (default: data)"
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help=line)
    line = "folder for results (default: runs/REPRODUCTION-SCALE)"
    parser.add_argument("--out", type=nonempty_path, metavar="DIR", help=line)
    line = "only the runs of one printed number, ROW / COLUMN or ROW / COLUMN / PART of it; can be repeated"
    parser.add_argument("--cell", action="append", default=[], metavar="NAME", help=line)
    line = "print which printed numbers are not run yet, and what they cost: the best evidence for the time first"
    parser.add_argument("--todo", action="store_true", help=line)
    line = "take the rows in a folder, such as RUN/rows, into the ledger"
    parser.add_argument("--merge", type=nonempty_path, metavar="FOLDER", help=line)
    line = "the folder of the ledger, for --todo and --merge (default: results)"
    parser.add_argument("--ledger", type=nonempty_path, default=Path("results"), metavar="DIR", help=line)
    add_options(
        parser, "--set", "--own-code", "--only", "--jobs", "--cluster", "--stop-after", "--no-progress", "--json"
    )


def _reproduce(args: Namespace) -> int:
    if args.todo:
        return _todo(args)
    if args.merge is not None:
        return _merge(args)
    if args.reproduction is None:
        raise SettingError("", "reproduction", "", "must be a table or figure: fedsash list reproductions has them")
    return _train(args)


def _train(args: Namespace) -> int:
    """Train the runs of a reproduction, and print its tables and claims. Returns the exit code."""
    from ..papers import load
    from ..papers.ledger import find
    from ..papers.reproduce import ROWS, Order, reproduce

    reproduction = load(args.reproduction)
    cells: list[Cell] = []
    for name in args.cell:
        cells += find(reproduction, name)
    out = args.out or RUNS / f"{reproduction.name}-{args.scale}"
    order = Order(reproduction, args.scale, args.only, args.set, args.own_code, args.data, cells)
    outcome = reproduce(
        order, out, jobs=args.jobs, cluster=args.cluster, progress=args.progress, command=_full_command(args)
    )
    args.answer = {"folder": str(out), "tables": outcome.tables, "missing": outcome.missing, "failed": outcome.failed}
    for content in outcome.tables:
        terminal.say()
        terminal.show(_table(content))
        for line in (*content.get("missing", ()), *content.get("chosen", ())):
            terminal.say_prose(line)
    terminal.say()
    for line in order.note_lines():
        terminal.say_prose(line)
    for line in outcome.missing:
        terminal.say(line)
    if outcome.claims:
        terminal.say("\nWhat the paper claims, and what these runs say of it:")
    for line in outcome.claims:
        terminal.say_prose(line)
    terminal.say(f"\nruns, tables, analyses and pictures: {out}")
    if outcome.rows:
        terminal.say(f"{outcome.rows} of the paper's numbers, for a ledger: fedsash reproduce --merge {out / ROWS}")
    elif outcome.other_data:
        terminal.say(f"no number for a ledger: {outcome.other_data}")
    if outcome.nothing:
        terminal.complain(f"fedsash: nothing was trained: no run has its data below --data {args.data}")
        return WRONG
    return report_failures(outcome.failed, outcome.signal)


def _full_command(args: Namespace) -> str:
    """The command that gives the same results again."""
    words = ["fedsash", "reproduce", args.reproduction, "--scale", args.scale]
    for option, values in {"--cell": args.cell, "--only": args.only, "--set": args.set}.items():
        for value in values:
            words += [option, value]
    if args.data != DATA:
        words += ["--data", str(args.data)]
    if args.own_code:
        words.append("--own-code")
    return shlex.join(words)


def _table(content: dict[str, Any]) -> Table:
    """A filled table for the terminal. A row of the paper takes up to three lines."""
    from ...runs.table import empty_table

    table = empty_table()
    table.title = content["title"]
    table.title_justify = "left"
    table.title_style = "bold"
    columns = content["columns"]
    numeric = not columns[1]  # of a paper's table; its second column says whose the numbers are
    for i, head in enumerate(columns):
        justify: Literal["left", "right"] = "right" if numeric and i > 1 else "left"
        table.add_column(head, overflow="fold", no_wrap=i == 1, justify=justify)
    styles = {"paper": "dim", "here": "bold"}
    before = None
    for row, *cells in content["rows"]:
        label = "" if row == before else row
        table.add_row(label, *cells, style=styles.get(cells[0], ""))
        before = row
    return table


def _todo(args: Namespace) -> int:
    """Print what is left to run."""
    from ..papers import load, reproductions
    from ..papers.ledger import Ledger
    from ..papers.merging import check_ledger
    from ..papers.todo import todo

    wanted = [load(args.reproduction)] if args.reproduction else list(reproductions().values())
    check_ledger(args.ledger, "--ledger")
    if not args.ledger.exists():
        terminal.complain(f"{args.ledger} is not there: nothing is run yet")
    tasks = todo(wanted, Ledger(args.ledger), args.data)
    args.answer = [task.record() for task in tasks]
    terminal.say("numbers, cost, command; the most numbers for the time first")
    open_numbers = sum(len(task.cells) for task in tasks)
    for task in tasks:
        why = f"; {task.missing}" if task.missing else ""
        terminal.say(f"{len(task.cells):3}  {task.cost}{why}: {task.command}")
    terminal.say(f"\n{open_numbers:,} printed numbers in {len(tasks)} tasks are not run yet at their setting")
    return OK


def _merge(args: Namespace) -> int:
    """Take rows into the ledger, and print what came of each."""
    from ..papers import claims, reproductions
    from ..papers.ledger import Ledger
    from ..papers.merging import merge

    report = merge(args.merge, Ledger(args.ledger), reproductions().values(), claims())
    args.answer = {"ledger": str(args.ledger), "taken": report.taken, "lines": report.lines}
    for line in report.lines:
        terminal.say(line)
    if not report.taken:
        terminal.complain(f"fedsash: no row was taken from {args.merge}")
        return WRONG
    terminal.say(f"{report.taken} rows taken into {args.ledger}")
    return OK


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

The folder of a data set is DIR/NAME (see docs/how-to/datasets.md). Runs without their data are left out. If the command
was stopped, the same command continues and trains nothing twice. A Python file of your own is run; of several
reproductions that it defines, NAME says which.
"""
