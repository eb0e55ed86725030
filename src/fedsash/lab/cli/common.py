"""What the commands share: exit codes, `--set`, and the line after Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, TypeAlias

from ...basics.files import check_folder

Commands: TypeAlias = "argparse._SubParsersAction[Any]"

OK, WRONG, INTERRUPTED, CLOSED = 0, 2, 130, 141


def interrupted(given: argparse.Namespace, stop: KeyboardInterrupt | None = None) -> int:
    """Print how to continue after Ctrl-C (`stop` may contain the line) and return the exit code."""
    out = getattr(given, "out", None)
    saved = out is not None and (out / "config.toml").exists()
    how = f"go on with: fedsash resume {out}" if saved else str(stop or "")
    print(f"stopped; {how}" if how else "stopped", file=sys.stderr)
    return INTERRUPTED


def check_out(out: Path, new: bool) -> None:
    """Refuse a folder that can't be written, that is in use, or, for a `new` run, that holds a run.

    A command asks before it loads data.
    """
    from ..runs.folder import RunFolder
    from ..runs.lock import check_free

    check_folder(out)
    check_free(out)
    if new:
        RunFolder(out).check_new()


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add `--set`, which changes a value of an experiment file."""
    line = "change one value of the experiment; can be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=line)


def add_sharing(parser: argparse.ArgumentParser) -> None:
    """Add the options of a sweep: which of its runs to train, and how many at the same time."""
    line = "only the runs with this label on the axis; repeat it for more labels"
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=LABEL", help=line)
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at the same time (default: one per core)")
    line = "print neither progress nor notes"
    parser.add_argument("--no-progress", dest="progress", action="store_false", help=line)
