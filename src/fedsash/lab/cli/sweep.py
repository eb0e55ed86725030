"""`fedsash sweep`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs import terminal
from .common import OK, RUNS, Commands, add_json, add_set, add_sweep_options, ended, place

if TYPE_CHECKING:
    from ..sweeps import Plan


def add(commands: Commands) -> None:
    """Add the command."""
    sweep = commands.add_parser("sweep", help="train many runs; shared rounds are trained once", epilog=SWEEP)
    sweep.add_argument("sweep", type=Path, help="sweep file (TOML)")
    line = "folder for the runs; runs that it already holds are continued (default: runs/NAME, after the file)"
    sweep.add_argument("--out", type=place, metavar="DIR", help=line)
    add_set(sweep)
    add_sweep_options(sweep)
    sweep.add_argument("--plan", action="store_true", help="print what would be trained, without training")
    add_json(sweep)
    sweep.set_defaults(command=_sweep)


def _sweep(given: argparse.Namespace) -> int:
    from ..sweeps import all_or, check_same, execute, load
    from ..sweeps.execute import check_place, planned
    from ..sweeps.foreman import done, trained
    from ..sweeps.notes import beyond_ends, others, same

    sweep = load(given.sweep, given.only, given.set, given.own_code)
    given.out = given.out or RUNS / given.sweep.stem  # always the same, so that the same command continues
    legs = planned(sweep, given.out)
    if given.plan:  # the training itself checks it, too
        check_place(given.out, legs.legs)
    if given.only and (given.out / "runs").exists():  # the other parts of the sweep must be of the same file
        asked = {run.name for run in sweep.runs}
        for run in all_or(sweep, lambda: load(given.sweep, (), given.set, given.own_code)).runs:
            check_same(run.experiment, given.out / "runs" / run.name, strictly=False, longer=run.name in asked)
    finished = done(legs.legs, given.out)
    so_far = trained(legs.legs, given.out, finished)
    left = f"; {so_far:,} of them are trained, {legs.to_train - so_far:,} left to train" if so_far else ""
    terminal.say(f"{legs}{left}")
    strangers = () if given.only else others(sweep, given.out)
    for line in (*strangers, *same(sweep), *beyond_ends(sweep)):
        terminal.complain(line)
    if given.plan:
        _show_legs(legs, finished)
        keys = "folder", "first", "last", "runs"
        shown = [{key: getattr(leg, key) for key in keys} | {"done": leg.folder in finished} for leg in legs.legs]
        given.answer = shown
        return OK
    executed = execute(sweep, given.out, given.jobs, given.progress, given.cluster)
    given.answer = {"folder": str(given.out), "runs": [run.name for run in sweep.runs], "failed": executed.failed}
    code = ended(executed.failed, executed.signal)
    if not executed.signal:
        compare = shlex.join(["fedsash", "compare", str(executed.folder)])
        terminal.say(f"\nruns: {executed.folder}/runs; compare them with: {compare}")
    return code


def _show_legs(plan: Plan, finished: Collection[str]) -> None:
    """Print every leg with its rounds, below the leg that it continues, and whether it is `finished`."""
    depth: dict[str, int] = {}
    for leg in plan.legs:
        depth[leg.folder] = 0 if leg.parent is None else depth[leg.parent.folder] + 1
        what = f"{len(leg.runs)} runs share" if leg.shared else leg.folder
        terminal.say(f"{'  ' * (depth[leg.folder] + 1)}{what}: {leg.span}{'; done' if leg.folder in finished else ''}")


SWEEP = """\
a sweep file:
  base = "experiment.toml"              an experiment file beside it, or its content as a table [base]
  [axes]
  seed = [0, 1, 2]                      values of a key
  "local.lr" = [0.1, 0.01]
  [axes.method.FedAvg]                  or labels, each with settings of its own
  [axes.method.FedProx]
  method = { name = "fedprox", mu = 0.01 }

Every combination is a run. With zip = [["seed", "local.lr"]] the first value of one axis goes with the first value of
the other, and so on. Runs that are identical up to some round train these rounds once. Runs that differ only in the
averages that they observe share all rounds. Runs that broadcast an average share the rounds before the broadcast.
The results are those of separate runs with the same engine. It is chosen for the rounds of all runs of a process.

examples:
  fedsash sweep sweep.toml --plan                    print what would be trained
  fedsash sweep sweep.toml                           train into runs/sweep; after Ctrl-C or a crash, the same command
                                                     continues there
  fedsash sweep sweep.toml --out runs/s --only method=FedAvg --set rounds=50
  fedsash sweep sweep.toml --out runs/s --set rounds=400         its runs in runs/s go on, to round 400 in all
  fedsash sweep sweep.toml --out runs/s --cluster auto           on all machines of a Ray cluster
  fedsash compare runs/s                             mean and deviation over seeds, gains
"""
