"""What the commands share: exit codes, folders, common options, and the line of a command that was stopped."""

from __future__ import annotations

import argparse
import math
import shlex
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ...basics.paths import check_folder
from ...runs import terminal
from ...settings.errors import shortened

if TYPE_CHECKING:
    from ..config import Experiment

Commands: TypeAlias = "argparse._SubParsersAction[Any]"

OK, WRONG, STUCK, STOPPED, CLOSED = 0, 2, 3, 128, 141
"""The exit codes: all is done; the command, a file or a run is wrong; the run is stuck; stopped by a signal, whose
number is added; nobody reads the output. A bug has 1, from Python."""

PICTURES = (".png", ".svg", ".pdf")
"""The endings of a picture's file."""
RUNS = Path("runs")
"""Where the folders lie that commands without `--out` write to."""


def stopped(given: argparse.Namespace, number: int = signal.SIGINT, how: Iterable[str] = ()) -> int:
    """Print that a signal has stopped the command, and `how` to continue. Returns the exit code."""
    out = getattr(given, "out", None)
    saved = out is not None and (out / "config.toml").exists()
    known = [f"go on with: {shlex.join(['fedsash', 'resume', str(out)])}"] if saved else []
    terminal.complain("; ".join(["stopped", *(list(how) or known)]))
    return STOPPED + number


def answer(given: argparse.Namespace, result: Any) -> None:
    """What a command that trains answers with --json: the summary of its run, where it is, and whether it has ended."""
    given.answer = {"folder": str(result.folder), "interrupted": result.interrupted, **result.summary}


def finished(summary: Mapping[str, Any]) -> int:
    """The exit code of a run that has come to its end; the table of its summary says since when it is stuck."""
    return STUCK if summary.get("stuck") else OK


def ended(failed: Mapping[str, str], number: int) -> int:
    """Print which runs of a sweep have failed, or that a signal has stopped it. Returns the exit code."""
    if number:
        terminal.complain("stopped; the same command continues")
        return STOPPED + number
    for name, reason in failed.items():
        terminal.complain(f"fedsash: {name} failed: {reason}")
    return WRONG if failed else OK


def check_out(out: Path, new: bool) -> None:
    """Refuse a folder of a run that can't be written or is in use, or that holds a run if this is a `new` one.

    A command asks before it loads data.
    """
    from ...basics.lock import check_free
    from ...runs.folder import RunFolder

    check_folder(out)
    check_free(out)
    if new:
        RunFolder(out).check_new()


@contextmanager
def new_folder(given: argparse.Namespace) -> Iterator[None]:
    """Give a command without `--out` a new folder, called after its experiment, and say which.

    It is `runs/NAME`, or `runs/NAME-2` and so on if that is there. It is made at once, so that commands that begin at
    the same time have different ones. If nothing was written into it, it is removed again.
    """
    if given.out is not None:
        yield
        return
    name = given.experiment.stem if given.experiment else given.federation.replace(":", "-").replace(".", "-")
    given.out = out = _made(name)
    if given.progress:
        terminal.say(f"folder: {out}")
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            out.rmdir()


def _made(name: str) -> Path:
    """The first folder of that name, or of one with a number, that is not there yet; it is made."""
    check_folder(RUNS)  # else a link to nothing looks like a name that is taken, and so does every other name
    for number in count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add `--out`, the folder of a new run, for `new_folder`."""
    line = (
        "folder for the run; must not hold a run already (default: runs/NAME, after the file; runs/NAME-2 if need be)"
    )
    parser.add_argument("--out", type=place, metavar="DIR", help=line)


def place(text: str) -> Path:
    """The path of an option; argparse makes an error of an empty one, which would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError('it is empty; "." is the current folder')
    return Path(text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`. The command puts its answer, plain data, into `given.answer`, and says the rest as always."""
    line = "print the answer as JSON on standard output, and all else on standard error"
    parser.add_argument("--json", action="store_true", help=line)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add `--set`, which changes a value of an experiment file, and `--own-code`."""
    line = "change one value of the experiment; can be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=line)
    add_own_code(parser)


def add_federation(parser: argparse.ArgumentParser) -> None:
    """Add `--federation`, for runs whose federation is made in Python."""
    line = "the function of yours that makes the federation"
    parser.add_argument("--federation", default="", metavar="PACKAGE.MODULE:FUNCTION", help=line)


def load_given(given: argparse.Namespace, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment of a command: in its file, or made by the function that `--federation` names."""
    from ..config import ConfigError, load, load_own

    if given.experiment is None and not given.federation:
        raise ConfigError("the experiment is missing: name its file, or a function of yours with --federation")
    if given.federation and given.experiment is not None:
        raise ConfigError(f"--federation {given.federation}: goes without a file; there it is built_by")
    changes = [*given.set, *overrides]
    if given.federation:
        return load_own(given.federation, changes, given.own_code)
    return load(given.experiment, changes, given.own_code)


def check_picture(file: Path) -> None:
    """Raise an error if a picture can't be drawn into this file."""
    from ...settings.errors import check

    check(file.suffix.lower() in PICTURES, "--out", str(file), f"must be a file that ends in {', '.join(PICTURES)}")
    check(not file.is_dir(), "--out", str(file), "is a folder, and must be a file")
    check_folder(file.parent)
    check(file.parent.is_dir(), "--out", str(file), f"is in a folder that is not there: {file.parent}")


def add_own_code(parser: argparse.ArgumentParser) -> None:
    """Add `--own-code`, which every command has that reads an experiment or a run."""
    line = "run the code outside fedsash that the experiment names, such as package.module:function"
    parser.add_argument("--own-code", action="store_true", help=line)


def add_stop_after(parser: argparse.ArgumentParser) -> None:
    """Add `--stop-after`, which every command has whose rounds may take long; `main` keeps to it."""
    line = "stop within this time, with all saved, to go on later: 90s, 9m or 1.5h"
    parser.add_argument("--stop-after", type=duration, metavar="TIME", help=line)


def duration(text: str) -> float:
    """The seconds of a time such as 90s, 9m, 1.5h or 90; argparse makes an error of any other text."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number = text[:-1] if text[-1:] in units else text
    try:
        seconds = float(number) * units.get(text[-1:], 1.0)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{shortened(text)!r} must be a time such as 90s, 9m or 1.5h")
    return seconds


def add_progress(parser: argparse.ArgumentParser) -> None:
    """Add `--no-progress`, which every command has that trains."""
    line = "print neither progress nor notes"
    parser.add_argument("--no-progress", dest="progress", action="store_false", help=line)


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a sweep: which of its runs to train, and how many at the same time, and where."""
    line = "only the runs with this label on the axis; repeat it for more labels"
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=LABEL", help=line)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="runs at the same time (default: one per core; 1 on a GPU)"
    )
    line = "train on all machines of a Ray cluster: its address, auto if one runs here, or local to start one here"
    parser.add_argument("--cluster", metavar="ADDRESS", help=line)
    add_stop_after(parser)
    add_progress(parser)
