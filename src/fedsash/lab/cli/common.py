"""What the commands share: exit codes, `--set`, and the line after Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[Any]"

OK, WRONG, INTERRUPTED = 0, 2, 130


def interrupted(given: argparse.Namespace, stop: KeyboardInterrupt | None = None) -> int:
    """Say how to go on with what was stopped, which `stop` may know; the exit code."""
    out = getattr(given, "out", None)
    saved = out is not None and (out / "config.toml").exists()
    how = f"go on with: fedsash resume {out}" if saved else str(stop or "")
    print(f"stopped; {how}" if how else "stopped", file=sys.stderr)
    return INTERRUPTED


def add_set(parser: argparse.ArgumentParser) -> None:
    """Let an experiment file's values be changed by `--set`."""
    line = "change one value of the experiment; may be given again"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=line)


def add_sharing(parser: argparse.ArgumentParser) -> None:
    """Let a part of a sweep be chosen, and how it shares the machine."""
    line = "only the runs with this label on the axis; more of the same axis add up"
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=LABEL", help=line)
    parser.add_argument("--jobs", type=int, metavar="N", help="how many runs side by side (default: one a core)")
    line = "print neither progress nor notes"
    parser.add_argument("--no-progress", dest="progress", action="store_false", help=line)
