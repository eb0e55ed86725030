"""The command line: each group of commands has a file, and `main` combines them."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from typing import Any, NoReturn

from ...basics.machine import own_version
from ...runs import terminal
from ...settings.errors import FedsashError, one_line, shortened
from . import (
    compare,
    completion,
    flower,
    init,
    listing,
    network,
    partition,
    report,
    reproduce,
    schema,
    studies,
    sweep,
    train,
)
from .common import CLOSED, OK, WRONG, Commands, stopped

GROUPS = (
    init,
    train,
    network,
    flower,
    sweep,
    compare,
    reproduce,
    studies,
    report,
    partition,
    listing,
    schema,
    completion,
)
COMMANDS = tuple(group.add for group in GROUPS)
"""What adds the commands of each group, in the order of `fedsash --help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code (see `common`).

    An error that the user can correct is printed as one line on standard error. It is a `FedsashError`, or an `OSError`
    such as a missing file or a full disk. Any other exception is a bug in fedsash or in a user's own code. It keeps its
    traceback.
    """
    terminal.replace_closed_streams()
    terminal.show_warnings()
    terminal.show_all_letters()
    with _quiet_where_nobody_reads():
        given = argparse.Namespace()
        try:
            return _carried_out(parser().parse_args(arguments, given))
        except KeyboardInterrupt as stop:
            return stopped(given, getattr(stop, "number", signal.SIGINT), filter(None, [str(stop), *_notes(stop)]))
        except BrokenPipeError:
            return CLOSED
        except (FedsashError, OSError) as error:
            terminal.complain("; ".join([f"fedsash: {one_line(error)}", *_notes(error)]))
            return WRONG


def _carried_out(given: argparse.Namespace) -> int:
    """The exit code of a command. With --json its answer goes to standard output, and all that it says elsewhere."""
    if not getattr(given, "json", False):
        return _in_time(given)
    from ...basics.files import json_of

    with redirect_stdout(sys.stderr):
        code = _in_time(given)
    terminal.say(json_of(given.answer).decode().rstrip())
    return code


def _in_time(given: argparse.Namespace) -> int:
    """The exit code of a command, which stops within the time that --stop-after gives it."""
    seconds = getattr(given, "stop_after", None)
    if seconds is None:
        code: int = given.command(given)
        return code
    from ...runs.time_limit import limited

    with limited(seconds):
        code = given.command(given)
        return code


@contextmanager
def _quiet_where_nobody_reads() -> Iterator[None]:
    """Say nothing if nobody reads the output any more, as in `fedsash list | head` and after a terminal was closed."""
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python writes once more as it ends


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions, and the names of all commands in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = len("    completion")  # argparse forgets that commands are indented once more


class _Once(argparse.Action):
    """Stores the value of an option, which may be given once: argparse would keep the last one and say nothing."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        seen = vars(namespace).setdefault(_SEEN, set())
        if option is not None and self.dest in seen:
            raise argparse.ArgumentError(self, "is given twice, and takes one value")
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


_SEEN = " seen"
"""The options of a command line so far, which the namespace holds while it is read."""


class Parser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of its help and reports an error in one line.

    `later` adds its options when the parser is used for the first time.
    """

    def __init__(self, later: Callable[[argparse.ArgumentParser], None] | None = None, **settings: Any) -> None:
        super().__init__(formatter_class=_Layout, **settings)
        self.register("action", None, _Once)
        self._later = later

    def fill(self) -> None:
        """Add the options that come later, if they are not there yet."""
        later, self._later = self._later, None
        if later is not None:
            later(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.fill()
        found, unknown = super().parse_known_args(args, namespace)
        if hasattr(found, _SEEN):
            delattr(found, _SEEN)
        if unknown:  # refused here, so that the message names the command, too
            close = [match for word in unknown for match in get_close_matches(word, self._option_string_actions, n=1)]
            hint = "".join(f"; did you mean {match}?" for match in close[:1])
            if "--set" in self._option_string_actions and unknown[0].startswith("--"):
                hint += f" (a setting: --set {unknown[0][2:].partition('=')[0]}=VALUE)"
            self.error(f"unknown: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        terminal.complain(f"{self.prog}: {shortened(_with_hint(message), 300)} (see {self.prog} --help)")
        self.exit(WRONG)


def _with_hint(message: str) -> str:
    """argparse's message about a choice that is not there, with the nearest one in place of all of them."""
    wrong = re.fullmatch(r"(.*invalid choice: '(.*)') \(choose from (.*)\)", message)
    close = wrong and get_close_matches(wrong[2], re.findall(r"[\w.-]+", wrong[3]), n=1)
    return f"{wrong[1]}; did you mean {close[0]}?" if wrong and close else message


def parser(commands: Iterable[Callable[[Commands], None]] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of all commands, which `commands` add."""
    parser = Parser(prog="fedsash", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"fedsash {own_version()}")
    places = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in commands:
        add(places)
    parser.set_defaults(command=_first)
    return parser


def _first(given: argparse.Namespace) -> int:
    """What one can do first: the answer to `fedsash` alone."""
    terminal.say(FIRST)
    return OK


DESCRIPTION = "Federated learning with averages of global models over rounds."

FIRST = f"""\
{DESCRIPTION} To begin:

  fedsash init                                      write experiment.toml: a small experiment on handwritten digits
  fedsash run experiment.toml                       train it into runs/experiment; prints a table, draws a picture
  fedsash report runs/experiment                    one page with all that came out
  fedsash init mine.toml --data images --path DIR   the same for data of your own: images, table, texts, npy
  fedsash list                                      all that an experiment file can say
  fedsash --help                                    all commands"""

EXAMPLES = """\
examples:
  fedsash init                                      write experiment.toml, with every setting and what it means
  fedsash run experiment.toml                       train; prints a table of the model and its averages
  fedsash resume runs/experiment --rounds 500       continue it up to round 500
  fedsash partition experiment.toml                 which client holds which labels
  fedsash list                                      all that an experiment file can say
  fedsash list averages window                      what one thing does, and its options
  fedsash completion bash                           completion of commands in your shell: how to switch it on

exit codes:
  0    all is done
  1    a bug in fedsash or in your own code, with a traceback
  2    an error in the command or in a file, or a run of a sweep that failed: one line each
  3    the run is stuck: it has diverged, or nobody who is asked answers; the line below its table says since when
  142  stopped by --stop-after, within its time: the same command, or fedsash resume, goes on
  129, 130, 143   stopped by SIGHUP (a closed terminal), Ctrl-C or SIGTERM (a queue): the round was finished and saved
"""
