"""The command line: `fedsash run`, `resume`, `partition` and `list`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # what computes is imported by the command that needs it
    from .config import Experiment
    from .config.registry import Make, Room
    from .runs import Result

OK, WRONG, INTERRUPTED = 0, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for what the user can put right, 130 after Ctrl-C.

    What the user can put right is one line on standard error: what the library's own checks refuse, missing files, a
    full disk. Any other exception is a bug, here or in a user's own code, and keeps its traceback.
    """
    sys.path.insert(0, os.getcwd())  # a user's own models and functions
    given = _parser().parse_args(arguments)
    try:
        code: int = given.command(given)
        return code
    except KeyboardInterrupt:
        return _interrupted(given)
    except (ValueError, ImportError, OSError) as error:
        if not isinstance(error, OSError) and not _ours(error):
            raise
        print(f"fedsash: {' '.join(str(error).split())}", file=sys.stderr)
        return WRONG


def _run(given: argparse.Namespace) -> int:
    from . import runs
    from .config import load

    numbers = {"seed": given.seed, "rounds": given.rounds}
    overrides = [f"{key}={number}" for key, number in numbers.items() if number is not None]
    experiment = load(given.experiment, [*given.set, *overrides])
    return _train(given, experiment, given.experiment, partial(runs.run, fork=given.fork))


def _resume(given: argparse.Namespace) -> int:
    from . import runs
    from .config import load

    file = given.out / "config.toml"
    if not file.exists():
        raise FileNotFoundError(f"{given.out} holds no run to resume: there is no {file}")
    experiment = load(file, [] if given.rounds is None else [f"rounds={given.rounds}"])
    return _train(given, experiment, file, runs.resume)


def _train(given: argparse.Namespace, experiment: Experiment, file: Path, train: Callable[..., Result]) -> int:
    """Train an experiment, and say what it came to."""
    import rich

    from .config.errors import prefixed
    from .records import TensorBoard
    from .report import table

    with prefixed(file):
        federation = experiment.federation()
    with ExitStack() as stack:
        boards = [TensorBoard(given.out / "tensorboard")] if experiment.records.tensorboard else []
        result = train(
            federation,
            experiment.rounds,
            out=given.out,
            checkpoint=experiment.checkpoint,
            progress=given.progress,
            callbacks=[stack.enter_context(closing(board)) for board in boards],
            config=experiment.table(),
        )
    if result.interrupted:
        return _interrupted(given)
    print()
    rich.print(table(result.summary, experiment.evaluation))
    print(f"\nmetrics, models and the picture of the curves: {result.folder}")
    return OK


def _partition(given: argparse.Namespace) -> int:
    from .config import load
    from .config.errors import prefixed
    from .data import gallery

    experiment = load(given.experiment, given.set)
    with prefixed(given.experiment):
        data = experiment.federated_data()
    print(gallery.table(data))
    if given.picture is not None:
        gallery.picture(data, given.picture)
        print(f"\npicture: {given.picture}")
    return OK


def _list(given: argparse.Namespace) -> int:
    from .config.errors import located
    from .config.registry import ROOMS

    if given.room is not None and given.room not in ROOMS:
        raise ValueError(f"there is no room {given.room!r}; there are {', '.join(ROOMS)}")
    if given.name is not None:
        room = ROOMS[given.room]
        with located(_table(room)):
            print(_details(given.name, room.find(given.name), room))
        return OK
    print("\n\n".join(_overview(room) for title, room in ROOMS.items() if given.room in (None, title)))
    return OK


def _overview(room: Room) -> str:
    """A room's things, one line each, under the key that chooses one of them."""
    from .config.registry import summary

    width = max(len(name) for name in room.things)
    lines = [f"  {name:<{width}}  {summary(make)}" for name, make in room.things.items()]
    return "\n".join([f"{_table(room)}.name", *lines])


def _details(name: str, make: Make, room: Room) -> str:
    """A thing's docstring, and its options with their defaults."""
    from inspect import getdoc

    from .config.registry import REQUIRED, describe, options, show

    rows = [("name", "a string", show(name))]
    for option in options(make).values():
        default = "(required)" if option.default is REQUIRED else show(option.default)
        rows.append((option.name, describe(option.kind), "(not set)" if option.default is None else default))
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    table = [f"  {key:<{widths[0]}}  {kind:<{widths[1]}}  {default}" for key, kind, default in rows]
    return "\n".join(
        [f"{_table(room)}.name = {show(name)}", "", getdoc(make) or "", "", "Options and defaults:", *table]
    )


def _table(room: Room) -> str:
    return room.key.replace("*", "NAME")


def _interrupted(given: argparse.Namespace) -> int:
    out = getattr(given, "out", None)
    saved = out is not None and (out / "config.toml").exists()
    print(f"stopped; go on with: fedsash resume {out}" if saved else "stopped", file=sys.stderr)
    return INTERRUPTED


def _ours(error: BaseException) -> bool:
    """Whether this package's own code raised the error, knowingly."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "fedsash"


class _Parser(argparse.ArgumentParser):
    """A parser that keeps the layout of its help and refuses a command line in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="fedsash", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"fedsash {version('fedsash')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="train what an experiment file says", epilog=RUN)
    run.add_argument("experiment", type=Path, help="experiment file (TOML); an empty one is an experiment, too")
    run.add_argument("--out", type=Path, required=True, help="folder for the run; must not hold one already")
    _add_set(run)
    run.add_argument("--seed", type=int, help="the same as --set seed=SEED")
    run.add_argument("--rounds", type=int, help="the same as --set rounds=ROUNDS")
    run.add_argument("--fork", type=_fork, metavar="RUN@ROUND", help="start from the state that RUN saved after ROUND")
    run.set_defaults(command=_run)

    resume = commands.add_parser("resume", help="go on with a run", epilog=RESUME)
    resume.add_argument("out", type=Path, metavar="run", help="the run's folder")
    resume.add_argument("--rounds", type=int, help="train until this round (counted from the run's beginning)")
    resume.set_defaults(command=_resume)
    for command in (run, resume):
        line = "print neither progress nor notes"
        command.add_argument("--no-progress", dest="progress", action="store_false", help=line)

    partition = commands.add_parser("partition", help="show which client holds which labels", epilog=PARTITION)
    partition.add_argument("experiment", type=Path, help="experiment file (TOML)")
    _add_set(partition)
    partition.add_argument("--out", dest="picture", type=Path, help="draw a picture, too, into this file (.png, .svg)")
    partition.set_defaults(command=_partition)

    listing = commands.add_parser("list", help="what an experiment file can name, one line each", epilog=LIST)
    listing.add_argument("room", nargs="?", help="methods, servers, averages, samplings, ... (default: all)")
    listing.add_argument("name", nargs="?", help="one of them: what it does, its options and their defaults")
    listing.set_defaults(command=_list)
    return parser


def _add_set(parser: argparse.ArgumentParser) -> None:
    line = "change one value of the file; may be given again"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=line)


def _fork(text: str) -> tuple[Path, int]:
    folder, _, round = text.rpartition("@")
    if not folder or not round.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be RUN@ROUND, such as runs/a@300")
    return Path(folder), int(round)


DESCRIPTION = "Federated learning with averages of global models over rounds."

EXAMPLES = """\
examples:
  fedsash run examples/digits.toml --out runs/a     train; prints a table of the model and its averages
  fedsash resume runs/a --rounds 500                go on with it, up to round 500
  fedsash partition examples/digits.toml            who holds what
  fedsash list                                      all that an experiment file can name
  fedsash list averages window                      what one of them does, and its options

An error in what you gave is one line and exit code 2; after Ctrl-C the exit code is 130.
"""

RUN = """\
examples:
  fedsash run experiment.toml --out runs/a
  fedsash run experiment.toml --out runs/b --seed 1 --set client.lr=0.05 --set method.name=scaffold
  fedsash run experiment.toml --out runs/c --set 'averages.w50={name="window", size=50}' --set feed=w50
  fedsash run experiment.toml --out runs/d --fork runs/a@300 --set feed=w50

A VALUE is written as in TOML; a bare word is a string. The folder will hold config.toml (the experiment, complete),
metrics.jsonl, summary.json, curves.png, models/ and state/. Ctrl-C ends the round and saves the state. A fork needs
a round whose state is still there: the last two saved ones, and those in checkpoint.keep.
"""

RESUME = """\
examples:
  fedsash resume runs/a                 after a crash, a kill or Ctrl-C: the result is that of a run never stopped
  fedsash resume runs/a --rounds 1000   and on to round 1000
"""

PARTITION = """\
examples:
  fedsash partition experiment.toml
  fedsash partition experiment.toml --out clients.png
  fedsash partition experiment.toml --set partition.alpha=0.01
"""

LIST = """\
rooms: methods, aggregations, servers, averages, samplings, schedules, local_schedules, partitions, models, datasets

examples:
  fedsash list
  fedsash list servers
  fedsash list servers adam
"""
