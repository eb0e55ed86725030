"""What the commands share: exit codes, `--set`, and the line after Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[Any]"

OK, WRONG, INTERRUPTED = 0, 2, 130


def interrupted(given: argparse.Namespace) -> int:
    """Say how to go on with what was stopped; the exit code."""
    out = getattr(given, "out", None)
    saved = out is not None and (out / "config.toml").exists()
    print(f"stopped; go on with: fedsash resume {out}" if saved else "stopped", file=sys.stderr)
    return INTERRUPTED


def add_set(parser: argparse.ArgumentParser) -> None:
    """Let an experiment file's values be changed by `--set`."""
    line = "change one value of the file; may be given again"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=line)
