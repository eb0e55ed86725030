"""The command line: `commands` names the commands, each of which imports its module when it is used."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec

from ...runs import terminal
from ...settings.errors import FedsashError, LibraryError, one_line
from ...system.machine import own_version
from ..studies import STUDIES
from .arguments import Parser
from .common import CLOSED, OK, WRONG, report_stop


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code (see `common`).

    An error that the user can correct is printed as one line on standard error. It is a `FedsashError`, or an `OSError`
    such as a missing file or a full disk. Any other exception is a bug in fedsash or in a user's own code. It keeps its
    traceback.
    """
    terminal.replace_closed_streams()
    terminal.show_warnings()
    terminal.show_all_letters()
    args = Namespace()
    with _quiet_where_nobody_reads():
        try:
            parser().parse_args(arguments, args)
            return _answer(args)
        except KeyboardInterrupt as stop:
            advice = [text for text in (str(stop), *_notes(stop)) if text]
            return report_stop(args, getattr(stop, "number", signal.SIGINT), advice)
        except BrokenPipeError:
            return CLOSED
        except (FedsashError, OSError) as error:
            terminal.complain("; ".join([f"fedsash: {one_line(error)}", *_notes(error)]))
            return WRONG


def commands() -> dict[str, tuple[str, str]]:
    """Each command's line in `fedsash --help`, and the function that gives its parser the arguments (see `Parser`)."""
    return {
        "init": ("write an experiment file for your data, with every setting", "files:add_init"),
        "run": ("train the experiment in a file", "run:add_run"),
        "resume": ("continue a run", "run:add_resume"),
        "network": ("train on a simulated network: time, congestion, failures", "run:add_network"),
        "flower": ("train over the nodes of a Flower federation", "flower:add"),
        "sweep": ("train many runs; shared rounds are trained once", "sweep:add"),
        "compare": ("means and gains over the seeds of runs and sweeps", "results:add_compare"),
        "reproduce": ("reproduce a paper's table or figure, with published and measured numbers", "reproduce:add"),
        **{name: (study.summary, "studies:add") for name, study in STUDIES.items()},
        "report": ("make an HTML page of runs and sweeps", "results:add_report"),
        "merge": ("average checkpoints of any training: files of PyTorch or safetensors", "merge:add"),
        "partition": ("show which client holds which labels", "files:add_partition"),
        "explain": ("one round of an experiment, step by step: who acts, what is sent and kept", "explain:add"),
        "noise": ("the least noise with which a private experiment keeps to an epsilon", "noise:add"),
        "list": ("what an experiment file can say, one line each", "listing:add"),
        "schema": (
            "write a JSON schema, with which an editor completes and checks experiment files",
            "files:add_schema",
        ),
        "completion": ("print a script that completes commands in your shell", "completion:add"),
    }


def parser(changes: Mapping[str, tuple[str, str]] | None = None) -> Parser:
    """The parser of all commands, of which `changes` replaces some."""
    parser = Parser(prog="fedsash", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"fedsash {own_version()}")
    parser.set_defaults(command=_show_first_steps)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (summary, add) in (commands() | dict(changes or {})).items():
        subparsers.add_parser(name, help=summary, add=add).set_defaults(verb=name)
    return parser


def check_installed() -> None:
    """Raise `LibraryError` if a library is missing that commands need: the core comes without them."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        raise LibraryError(f'commands need {names}, which the core lacks: pip install "fedsash[lab]"')


def _answer(args: Namespace) -> int:
    """The exit code of a command. With --json its answer goes to standard output, and all that it says elsewhere.

    A command whose default `core` is set needs the core's libraries alone.
    """
    if not getattr(args, "core", False):
        check_installed()
    if not getattr(args, "json", False):
        return _run(args)
    from ...system.files import json_of

    with redirect_stdout(sys.stderr):
        code = _run(args)
    terminal.say(json_of(args.answer).decode().rstrip())
    return code


def _run(args: Namespace) -> int:
    """The exit code of a command, which stops within the time of --stop-after."""
    seconds = getattr(args, "stop_after", None)
    code: int
    if seconds is None:
        code = args.command(args)
        return code
    from ...runs.time_limit import limited

    with limited(seconds):
        code = args.command(args)
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


def _show_first_steps(args: Namespace) -> int:
    """What one can do first: the answer to `fedsash` alone."""
    terminal.say(FIRST)
    return OK


LIBRARIES = ("matplotlib", "platformdirs", "rich", "shtab", "simpy", "sklearn", "tomli_w")
"""What the extra `lab` brings."""

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
  fedsash explain experiment.toml                   one round of it, step by step
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
