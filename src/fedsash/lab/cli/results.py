"""`fedsash compare` and `fedsash report`: the results of runs and sweeps."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...runs import terminal
from ...settings.errors import RunError, check, some
from ...system.paths import check_file
from .arguments import Parser, add_options, nonempty_path
from .common import OK, WRONG, check_picture

if TYPE_CHECKING:
    from ..report.collect import CollectedRun

PAGE = "report.html"
"""What a page without `--out` is called. It lies in the first of the folders that it shows."""
FOLDERS = "runs and sweeps, or folders of them"


def add_compare(parser: Parser) -> None:
    """Add the arguments of `fedsash compare`."""
    parser.epilog = COMPARE
    parser.set_defaults(command=_compare)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help=FOLDERS)
    line = "compute gains over the model of the runs with this label, instead of the run's own model"
    parser.add_argument("--against", metavar="AXIS=LABEL", help=line)
    line = "combine runs that differ in KEY: each model at its best value, which a split chooses (--by)"
    parser.add_argument("--best-over", default="", metavar="KEY", help=line)
    line = "the split that chooses, which must not be that of the results (default: held_out)"
    parser.add_argument("--by", default="", metavar="SPLIT", help=line)
    line = "compare a number over clients, such as client_test/worst_tenth, or with client_test/each every client"
    parser.add_argument("--of", default="", metavar="SPLIT/NUMBER", help=line)
    line = "also draw the curves over each other into this file (.png, .svg, .pdf): means over the seeds"
    parser.add_argument("--picture", type=nonempty_path, metavar="FILE", help=line)
    add_options(parser, "--json")


def _compare(args: Namespace) -> int:
    from ..report.collect import collect
    from ..report.comparison import (
        by_decided,
        compare,
        compare_best,
        head,
        not_chosen,
        of_other_data,
        of_other_lengths,
        table,
        unlike,
    )

    _check_compared(args)
    collection = collect(args.folders)
    notes = [*collection.notes, *collection.damaged]
    for sweep in collection.sweeps:
        notes += [f"{name} failed: {reason}" for name, reason in sweep.failed.items()]
    notes += [f"run {run.name}: {run.note}" for run in collection.runs if run.note]
    notes += unlike(collection.runs)
    notes += of_other_data(collection.runs)
    finished = [run for run in collection.runs if run.finished]
    unfinished = [run.name for run in collection.runs if not run.finished]
    if finished and unfinished:
        notes.append(f"left out, since others are finished: {some(unfinished)}")
    compared = finished or collection.runs
    notes += of_other_lengths(compared)
    for note in notes:
        terminal.complain(f"fedsash: {note}")
    if args.best_over:
        rows = compare_best(compared, args.best_over, args.by or "held_out", args.against)
        for note in not_chosen(rows):
            terminal.complain(f"fedsash: {note}")
    else:
        rows = compare(compared, args.against, args.of)
    args.answer = [row.plain() for row in rows]
    for alike in by_decided(rows):
        terminal.say(head(alike, compared, args.of))
        terminal.show(table(alike))
    if args.picture is not None:
        _draw(compared, args.picture)
    return WRONG if collection.damaged else OK


def _check_compared(args: Namespace) -> None:
    """Raise `SettingError` for options that can't be given together, and for a picture that can't be drawn."""
    check(bool(args.best_over) or not args.by, "--by", args.by, "needs --best-over KEY, which says what is chosen")
    requirement = "can't be given with --best-over, which reports the metric that decides"
    check(not args.best_over or not args.of, "--of", args.of, requirement)
    if args.picture is not None:
        check_picture(args.picture, "--picture")
        alone = not args.of and not args.best_over
        requirement = "can't be given with --of or --best-over: it draws all runs, by the metric that decides"
        check(alone, "--picture", str(args.picture), requirement)


def _draw(runs: Sequence[CollectedRun], file: Path) -> None:
    """Draw the runs over each other, or the models of a single one; several metrics or splits have panels of their own.

    Raises `RunError` if no run was evaluated.
    """
    from ...evaluation import NOT_EVALUATED
    from ...runs.pictures.paper import draw
    from ..report.page.papers import of_settings

    picture = of_settings(runs)
    if picture is None:
        raise RunError(f"--picture: {NOT_EVALUATED}")
    draw(picture, file)
    terminal.say(f"\npicture: {file}")


def add_report(parser: Parser) -> None:
    """Add the arguments of `fedsash report`."""
    parser.epilog = REPORT
    parser.set_defaults(command=_report)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_OR_SWEEP", help=FOLDERS)
    line = f"the page (default: {PAGE} in the first folder)"
    parser.add_argument("--out", dest="page", type=nonempty_path, metavar="FILE", help=line)
    parser.add_argument(
        "--figures", type=nonempty_path, metavar="DIR", help="also write pictures for a paper: PDF and PNG"
    )


def _report(args: Namespace) -> int:
    from ...system.files import replace_file
    from ..report.collect import collect
    from ..report.page import document
    from ..report.page.papers import draw

    file = args.page or _first_folder(args.folders) / PAGE
    check_file(file)
    collection = collect(args.folders)
    words = ["fedsash", "report", *map(str, args.folders), "--out", str(file)]
    if args.figures is not None:
        words += ["--figures", str(args.figures)]
    page = document(collection, shlex.join(words)).encode(errors="backslashreplace")
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, page)
    for note in (*collection.notes, *collection.damaged):
        terminal.say(f"note: {note}")
    terminal.say(f"page: {file} ({len(page) / 1e6:.1f} MB)")
    if args.figures is not None:
        terminal.say(f"pictures: {draw(collection, args.figures)} files in {args.figures}")
    return WRONG if collection.damaged else OK


def _first_folder(paths: Sequence[Path]) -> Path:
    """The first path that is no file: a shell's `runs/*` may begin with the picture of a run."""
    for path in paths:
        if not path.is_file():
            return path
    return paths[0].parent


COMPARE = """\
Runs that differ only in their seed are combined: one row for each model. It shows the metric that decides, as its mean
over the seeds and the last evaluations, the sample standard deviation over the seeds, and the mean gain with its 95 %
confidence interval (paired by seed). Without --against, the gain is over the global model of the same run, as in WiMA.
With --against, it is over the model of other runs, as in IMA.

With --best-over, runs that differ in a setting or an axis are one row for each model: held-out data choose the value,
and the row has what the test set says of it. Gains are over the model at its own best value.

Runs that are not finished are left out, unless none is.

examples:
  fedsash compare runs/s
  fedsash compare runs/s --against ima=off
  fedsash compare runs/a runs/b --against run=a
  fedsash compare runs/a runs/b --picture both.pdf                both curves in one picture
  fedsash compare runs/s --best-over local.lr --by held_out       each method at its best rate; the test set once
  fedsash compare runs/s --of client_test/worst_tenth             does a window help the worst clients?
  fedsash compare runs/s --of client_test/each                    a row for each client, at the last evaluation
  fedsash compare runs/old runs/new --against sweep=old           two sweeps
"""

REPORT = """\
examples:
  fedsash report runs/a
  fedsash report runs                                            all runs and sweeps in a folder
  fedsash report runs/a runs/b --out both.html --figures figures
  fedsash report sweeps/lr --out lr.html

The page needs no network and no other file. Runs may be unfinished: the page shows their numbers so far.
"""
