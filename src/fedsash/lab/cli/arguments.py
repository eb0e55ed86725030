"""How a command reads its arguments: the parser, types of values, and the options that several commands share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from ...runs import terminal
from ...settings.errors import shortened
from .common import WRONG


class Parser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of its help, takes an option once, and reports an error in one line.

    `add`, as "module:function" of this package, gives it its arguments when it is first used. So a command's module is
    imported for this command only.
    """

    def __init__(self, add: str = "", **settings: Any) -> None:
        super().__init__(formatter_class=_Layout, **settings)
        self.register("action", None, _Once)
        self.seen: set[str] = set()
        self._add = add

    def fill(self) -> None:
        """Add the arguments, if they are not there yet."""
        if self._add:
            add_arguments = resolve_name(f"{__package__}.{self._add}")
            self._add = ""
            add_arguments(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The values of the arguments. Unknown ones are refused here, so that the error names the command, too."""
        self.fill()
        self.seen = set()
        values, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown: {' '.join(unknown)}{self._hint(unknown)}")
        return values, unknown

    def _hint(self, unknown: Sequence[str]) -> str:
        """What the user may have meant by arguments that are unknown."""
        options = self._option_string_actions
        by_name = {option.lstrip("-"): option for option in options}  # the dashes alone make no two options alike
        hint = ""
        for word in unknown:
            close = get_close_matches(word.lstrip("-"), by_name, n=1)
            if close:
                hint = f"; did you mean {by_name[close[0]]}?"
                break
        if "--set" in options and unknown[0].startswith("--"):
            key = unknown[0].removeprefix("--").partition("=")[0]
            hint += f" (a setting: --set {key}=VALUE)"
        return hint

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the nearest choice in place of all of them, if a value is none of the choices."""
        if action.choices is not None and value not in action.choices:
            close = get_close_matches(value, action.choices, n=1)
            if close:
                raise argparse.ArgumentError(action, f"invalid choice: {value!r}; did you mean {close[0]}?")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        terminal.complain(f"{self.prog}: {shortened(message, 300)} (see {self.prog} --help)")
        self.exit(WRONG)


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions, and the names of all commands in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = len("    completion")  # argparse forgets that commands are indented once more


class _Once(argparse.Action):
    """Stores the value of an option, which may be given once: argparse would keep the last one and say nothing."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        if option is not None and self.dest in parser.seen:
            raise argparse.ArgumentError(self, "is given twice, and takes one value")
        parser.seen.add(self.dest)
        setattr(namespace, self.dest, values)


def nonempty_path(text: str) -> Path:
    """The path of an option; argparse makes an error of an empty one, which would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError('it is empty; "." is the current folder')
    return Path(text)


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


def part(text: str) -> tuple[int, int]:
    """The numbers of I/N; argparse makes an error of any other text."""
    number, _, count = text.partition("/")
    if number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise argparse.ArgumentTypeError(f"{shortened(text)!r} must be I/N, from 1/N to N/N, such as 17/24")


def saved_state(text: str) -> tuple[Path, int]:
    """The folder and the round of RUN@ROUND; argparse makes an error of any other text."""
    folder, _, round = text.rpartition("@")
    if not folder or not round.isdecimal() or len(round) > 18:
        raise argparse.ArgumentTypeError(f"{shortened(text)!r} must be RUN@ROUND, such as runs/a@300")
    return Path(folder), int(round)


OPTIONS: dict[str, dict[str, Any]] = {
    "--out": dict(
        type=nonempty_path,
        metavar="DIR",
        help="folder for the run; must not hold a run already "
        "(default: runs/NAME, after the file; runs/NAME-2 if need be)",
    ),
    "--set": dict(
        action="append", default=[], metavar="KEY=VALUE", help="change one value of the experiment; can be repeated"
    ),
    "--own-code": dict(
        action="store_true",
        help="run the code outside fedsash that the experiment names, such as package.module:function",
    ),
    "--federation": dict(
        default="", metavar="PACKAGE.MODULE:FUNCTION", help="the function of yours that makes the federation"
    ),
    "--fork": dict(type=saved_state, metavar="RUN@ROUND", help="start from the state that RUN saved after ROUND"),
    "--only": dict(
        action="append",
        default=[],
        metavar="AXIS=LABEL",
        help="only the runs with this label on the axis; repeat it for more labels",
    ),
    "--part": dict(
        type=part, metavar="I/N", help="only the I-th of N parts of the runs, as for the tasks of an array job: 17/24"
    ),
    "--jobs": dict(type=int, metavar="N", help="runs at the same time (default: one per core; 1 on a GPU)"),
    "--cluster": dict(
        metavar="ADDRESS",
        help="train on all machines of a Ray cluster: its address, auto if one runs here, or local to start one here",
    ),
    "--stop-after": dict(
        type=duration, metavar="TIME", help="stop within this time, with all saved, to go on later: 90s, 9m or 1.5h"
    ),
    "--no-progress": dict(dest="progress", action="store_false", help="print neither progress nor notes"),
    "--json": dict(
        action="store_true", help="print the answer as JSON on standard output, and all else on standard error"
    ),
}
"""The options that several commands share. `main` itself keeps to `--stop-after`, and prints `args.answer`, plain data
that the command leaves there, for `--json`."""


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add some of `OPTIONS`."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])
