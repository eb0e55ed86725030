"""`fedsash report`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ...basics.paths import check_file
from ...runs import terminal
from .common import OK, WRONG, Commands, place

PAGE = "report.html"
"""What a page without `--out` is called. It lies in the first of the folders that it shows."""


def add(commands: Commands) -> None:
    """Add the command."""
    report = commands.add_parser("report", help="make an HTML page of runs and sweeps", epilog=REPORT)
    report.add_argument("folders", nargs="+", type=Path, metavar="RUN_OR_SWEEP", help="folders of runs and sweeps")
    report.add_argument(
        "--out", dest="page", type=place, metavar="FILE", help=f"the page (default: {PAGE} in the first folder)"
    )
    report.add_argument("--figures", type=place, metavar="DIR", help="also write pictures for a paper: PDF and PNG")
    report.set_defaults(command=_report)


def _report(given: argparse.Namespace) -> int:
    from ...basics.files import replace_file
    from ..report.collect import collect
    from ..report.page import document
    from ..report.page.papers import draw

    file = given.page or given.folders[0] / PAGE
    check_file(file)
    found = collect(given.folders)
    figures = [] if given.figures is None else ["--figures", str(given.figures)]
    command = ["fedsash", "report", *map(str, given.folders), "--out", str(file), *figures]
    page = document(found, shlex.join(command)).encode(errors="backslashreplace")
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, page)
    for note in (*found.notes, *found.damaged):
        terminal.say(f"note: {note}")
    terminal.say(f"page: {file} ({len(page) / 1e6:.1f} MB)")
    if given.figures is not None:
        terminal.say(f"pictures: {draw(found, given.figures)} files in {given.figures}")
    return WRONG if found.damaged else OK


REPORT = """\
examples:
  fedsash report runs/a
  fedsash report runs/a runs/b --out both.html --figures figures
  fedsash report sweeps/lr --out lr.html

The page needs no network and no other file. Runs may be unfinished: the page shows their numbers so far.
"""
