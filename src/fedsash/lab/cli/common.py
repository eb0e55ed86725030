"""What commands share: exit codes, a run's experiment and folder, and the line of a command that was stopped."""

from __future__ import annotations

import shlex
import signal
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runs import terminal
from ...settings.errors import check
from ...system.paths import check_folder

if TYPE_CHECKING:
    from ..config import Experiment

OK = 0
"""The exit code of a command that has done all. A bug has 1, from Python."""
WRONG = 2
"""The command, a file or a run is wrong."""
STUCK = 3
"""The run is stuck."""
STOPPED = 128
"""The command was stopped by a signal, whose number is added."""
CLOSED = 141
"""Nobody reads the output."""

PICTURES = (".png", ".svg", ".pdf")
"""The endings of a picture's file."""

RUNS = Path("runs")
"""Where the folders lie that commands without `--out` write to."""


def check_picture(file: Path, option: str) -> None:
    """Raise an error that names the option if a picture can't be drawn into this file."""
    check(file.suffix.lower() in PICTURES, option, str(file), f"must be a file that ends in {', '.join(PICTURES)}")
    check(not file.is_dir(), option, str(file), "is a folder, and must be a file")
    check_folder(file.parent)
    check(file.parent.is_dir(), option, str(file), f"is in a folder that is not there: {file.parent}")


def load_experiment(args: Namespace, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment of a command: in its file, or made by the function that `--federation` names."""
    from ..config import ConfigError, load, load_own

    if args.experiment is None and not args.federation:
        raise ConfigError("the experiment is missing: name its file, or a function of yours with --federation")
    if args.federation and args.experiment is not None:
        raise ConfigError(f"--federation {args.federation}: goes without a file; there it is built_by")
    changes = [*args.set, *overrides]
    if args.federation:
        return load_own(args.federation, changes, args.own_code)
    return load(args.experiment, changes, args.own_code)


def check_out(out: Path, new: bool) -> None:
    """Refuse a folder of a run that can't be written or is in use, or that holds a run if this is a `new` one.

    A command asks before it loads data.
    """
    from ...runs.folder import RunFolder
    from ...system.lock import check_free

    folder = RunFolder(out)
    folder.check_path()
    check_free(out)
    if new:
        folder.check_new()


def exit_code(summary: Mapping[str, Any]) -> int:
    """The exit code of a run that has come to its end; the table of its summary says since when it is stuck."""
    return STUCK if summary.get("stuck") else OK


def report_stop(args: Namespace, number: int = signal.SIGINT, how: Iterable[str] = ()) -> int:
    """Print that a signal has stopped the command, and `how` to continue. Returns the exit code."""
    out = getattr(args, "out", None)
    advice = list(how)
    if not advice and out is not None and (out / "config.toml").exists():
        advice = [f"go on with: {shlex.join(['fedsash', 'resume', str(out)])}"]
    terminal.complain("; ".join(["stopped", *advice]))
    return STOPPED + number


def report_failures(failures: Mapping[str, str], number: int) -> int:
    """Print which runs of a sweep have failed, or that a signal has stopped it. Returns the exit code."""
    if number:
        terminal.complain("stopped; the same command continues")
        return STOPPED + number
    for name, reason in failures.items():
        terminal.complain(f"fedsash: {name} failed: {reason}")
    return WRONG if failures else OK
