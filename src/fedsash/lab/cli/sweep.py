"""`fedsash sweep`."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runs import terminal
from .arguments import Parser, add_options, nonempty_path
from .common import OK, RUNS, report_failures

if TYPE_CHECKING:
    from ..sweeps import Plan, Segment, Sweep


def add(parser: Parser) -> None:
    """Add the arguments."""
    parser.epilog = SWEEP
    parser.set_defaults(command=_sweep)
    parser.add_argument("sweep", type=Path, help="sweep file (TOML)")
    line = "folder for the runs; runs that it already holds are continued (default: runs/NAME, after the file)"
    parser.add_argument("--out", type=nonempty_path, metavar="DIR", help=line)
    add_options(
        parser, "--set", "--own-code", "--only", "--part", "--jobs", "--cluster", "--stop-after", "--no-progress"
    )
    parser.add_argument("--plan", action="store_true", help="print what would be trained, without training")
    add_options(parser, "--json")


def _sweep(args: Namespace) -> int:
    from ..sweeps import execute, load
    from ..sweeps.execute import check_place, planned
    from ..sweeps.scheduling import done, trained

    sweep = load(args.sweep, args.only, args.set, args.own_code)
    if args.part is not None:
        sweep = sweep.part(*args.part)
    args.out = args.out or RUNS / args.sweep.stem  # always the same, so that the same command continues
    plan = planned(sweep, args.out)
    if args.plan:  # the training itself checks it, too
        check_place(args.out, plan.segments)
    _check_other_parts(sweep, args)
    finished = done(plan.segments, args.out)
    progress = trained(plan.segments, args.out, finished)
    left = ""
    if progress:
        left = f"; {progress:,} of them are trained, {plan.to_train - progress:,} left to train"
    terminal.say(f"{plan}{left}")
    _warn(sweep, args)
    if args.plan:
        _show_segments(plan, finished)
        args.answer = [_record(segment, finished) for segment in plan.segments]
        return OK
    report = execute(sweep, args.out, args.jobs, args.progress, args.cluster)
    args.answer = {"folder": str(args.out), "runs": [run.name for run in sweep.runs], "failed": report.failed}
    code = report_failures(report.failed, report.signal)
    if not report.signal:
        compare = shlex.join(["fedsash", "compare", str(report.folder)])
        terminal.say(f"\nruns: {report.folder}/runs; compare them with: {compare}")
    return code


def _check_other_parts(sweep: Sweep, args: Namespace) -> None:
    """With --only and --part, the other parts of the sweep that are in its folder must be of the same file."""
    from ..sweeps import all_or, check_same, load

    folder = args.out / "runs"
    if sweep.others and folder.exists():
        names = {run.name for run in sweep.runs}
        for run in all_or(sweep, lambda: load(args.sweep, (), args.set, args.own_code)).runs:
            check_same(run.experiment, folder / run.name, strictly=False, longer=run.name in names)


def _warn(sweep: Sweep, args: Namespace) -> None:
    """Print what may be a mistake in the sweep or in its folder."""
    from ..sweeps.notes import beyond_ends, others, same

    strangers = () if sweep.others else others(sweep, args.out)
    for line in (*strangers, *same(sweep), *beyond_ends(sweep)):
        terminal.complain(line)


def _show_segments(plan: Plan, finished: Collection[str]) -> None:
    """Print every segment with its rounds, below the segment that it continues, and whether it is `finished`."""
    depth: dict[str, int] = {}
    for segment in plan.segments:
        depth[segment.folder] = 0 if segment.parent is None else depth[segment.parent.folder] + 1
        indent = "  " * (depth[segment.folder] + 1)
        name = f"{len(segment.runs)} runs share" if segment.shared else segment.folder
        note = "; done" if segment.folder in finished else ""
        terminal.say(f"{indent}{name}: {segment.span}{note}")


def _record(segment: Segment, finished: Collection[str]) -> dict[str, Any]:
    """A segment as plain data for JSON."""
    return {
        "folder": segment.folder,
        "first": segment.first,
        "last": segment.last,
        "runs": segment.runs,
        "done": segment.folder in finished,
    }


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
  fedsash sweep sweep.toml --out runs/s --part 17/24             the 17th task of an array job of 24
  fedsash sweep sweep.toml --out runs/s --set rounds=400         its runs in runs/s go on, to round 400 in all
  fedsash sweep sweep.toml --out runs/s --cluster auto           on all machines of a Ray cluster
  fedsash compare runs/s                             mean and deviation over seeds, gains
"""
