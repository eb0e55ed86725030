"""`fedsash compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...runs import terminal
from ...settings.errors import some
from .common import OK, WRONG, Commands, add_json


def add(commands: Commands) -> None:
    """Add the command."""
    compare = commands.add_parser("compare", help="means and gains over the seeds of runs and sweeps", epilog=COMPARE)
    compare.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folders of runs or sweeps")
    line = "compute gains over the model of the runs with this label, instead of the run's own model"
    compare.add_argument("--against", metavar="AXIS=LABEL", help=line)
    line = "compare a number over clients, such as client_test/worst_tenth, or with client_test/each every client"
    compare.add_argument("--of", default="", metavar="SPLIT/NUMBER", help=line)
    add_json(compare)
    compare.set_defaults(command=_compare)


def _compare(given: argparse.Namespace) -> int:
    from ..report.collect import collect
    from ..report.comparison import compare, table, unlike

    found = collect(given.folders)
    notes = [
        *found.notes,
        *found.damaged,
        *(f"{name} failed: {why}" for sweep in found.sweeps for name, why in sweep.failed.items()),
        *(f"run {run.name}: {run.note}" for run in found.runs if run.note),
        *unlike(found.runs),
    ]
    ended = [run for run in found.runs if run.finished]
    if ended and len(ended) < len(found.runs):
        notes.append(f"left out, since others are finished: {some([r.name for r in found.runs if not r.finished])}")
    for note in notes:
        terminal.complain(f"fedsash: {note}")
    rows = compare(ended or found.runs, given.against, given.of)
    given.answer = [row.plain() for row in rows]
    terminal.show(table(rows))
    return WRONG if found.damaged else OK


COMPARE = """\
Runs that differ only in their seed are combined: one row for each model. It shows the metric that decides, as its mean
over the seeds and the last evaluations, the sample standard deviation over the seeds, and the mean gain with its 95 %
confidence interval (paired by seed). Without --against, the gain is over the global model of the same run, as in WiMA.
With --against, it is over the model of other runs, as in IMA.

Runs that are not finished are left out, unless none is.

examples:
  fedsash compare runs/s
  fedsash compare runs/s --against ima=off
  fedsash compare runs/a runs/b --against run=a
  fedsash compare runs/s --of client_test/worst_tenth             does a window help the worst clients?
  fedsash compare runs/s --of client_test/each                    a row for each client, at the last evaluation
  fedsash compare runs/old runs/new --against sweep=old           two sweeps
"""
