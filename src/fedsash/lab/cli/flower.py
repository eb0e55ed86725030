"""`fedsash flower`: serve an experiment file to the nodes of a Flower federation, and start a node."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

from ...runs import terminal
from ...settings.errors import SettingError, check, check_count, check_positive
from ...system.paths import check_folder
from .arguments import Parser, add_options, nonempty_path
from .common import OK, RUNS, WRONG, check_out, exit_code, load_experiment

SUPERNODE = "fedsash.lab.served.supernode"
"""The module that a node runs."""
LOOK = 15.0
"""After so many seconds without news Flower is asked whether the run goes on, each time by a process of its own."""


def add(parser: Parser) -> None:
    """Add the commands."""
    parser.epilog = EXAMPLES
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    line = "serve the experiment in a file to the nodes, or go on with its run"
    commands.add_parser("serve", help=line, add="flower:add_serve")
    commands.add_parser("node", help="start a node on its own data", add="flower:add_node")


def add_serve(parser: Parser) -> None:
    """Add the arguments of `fedsash flower serve`."""
    parser.set_defaults(command=_serve, federation="")
    parser.add_argument("experiment", type=Path, help="experiment file (TOML)")
    line = "folder for the run, on the SuperLink's machine (default: runs/NAME-flower, after the file)"
    parser.add_argument("--out", type=nonempty_path, metavar="DIR", help=line)
    parser.add_argument("--clients", type=int, required=True, metavar="N", help="how many clients the nodes hold")
    line = "the SuperLink's name in ~/.flwr/config.toml"
    parser.add_argument("--superlink", required=True, metavar="NAME", help=line)
    line = "seconds that a round waits for answers (default: 600)"
    parser.add_argument("--deadline", type=float, default=600.0, metavar="S", help=line)
    line = "seconds that the beginning waits for all nodes, and a round for any (default: 120)"
    parser.add_argument("--roll-call", type=float, default=120.0, metavar="S", help=line)
    line = "skip a round with fewer usable uploads (default: 1)"
    parser.add_argument("--minimum", type=int, default=1, metavar="N", help=line)
    line = "with an asynchronous scheduler: at most so many clients train at a time (default: all)"
    parser.add_argument("--limit", type=int, metavar="N", help=line)
    add_options(parser, "--fork", "--set", "--own-code")


def add_node(parser: Parser) -> None:
    """Add the arguments of `fedsash flower node`."""
    parser.set_defaults(command=_node)
    line = "file with [data]; with a [partition], this node has its share of the samples"
    parser.add_argument("data", type=Path, help=line)
    line = "the number of this node's client, from 0"
    parser.add_argument("--number", type=int, required=True, metavar="I", help=line)
    parser.add_argument("--superlink", required=True, metavar="ADDRESS", help="host:port of the SuperLink")
    parser.add_argument(
        "--state", type=nonempty_path, help="folder for the client's state (default: ~/.fedsash/clients)"
    )
    line = "the device that trains: cpu, cuda, auto ... (default: cpu)"
    parser.add_argument("--device", default="cpu", metavar="NAME", help=line)
    line = "code of yours that the server may name; can be repeated"
    parser.add_argument("--own-code", action="append", default=[], metavar="PACKAGE.MODULE:NAME", help=line)
    line = "other options of flower-supernode: --supernode='--insecure --port 8001'; can be repeated"
    parser.add_argument("--supernode", default=[], action="append", metavar="OPTIONS", help=line)


def _serve(args: Namespace) -> int:
    from ...flower import Waiting
    from ...runs import Fork
    from ..config import ConfigError
    from ..served.apps import write_app

    args.out = args.out or RUNS / f"{args.experiment.stem}-flower"  # always the same: the same command goes on
    check_out(args.out, new=False)
    check_count("--clients", args.clients)
    experiment = load_experiment(args)
    if experiment.stateless:
        raise ConfigError("network.learning = False: nobody trains", "network.learning", file=str(args.experiment))
    check_positive("--deadline", args.deadline, "in seconds")
    check_positive("--roll-call", args.roll_call, "in seconds")
    check_count("--minimum", args.minimum)
    check_count("--limit", args.limit)
    waiting = Waiting(deadline=args.deadline, roll_call=args.roll_call, minimum=args.minimum)
    fork = None if args.fork is None else Fork(*args.fork)
    try:
        with tempfile.TemporaryDirectory(prefix="fedsash-") as folder:
            write_app(Path(folder), experiment, args.out, args.clients, waiting, args.limit, fork)
            code, message = _follow(Path(folder), args, experiment.rounds)
    except KeyboardInterrupt as stop:
        stop.add_note("the same command goes on")
        raise
    if code == OK:
        return _show(args.out)
    for line in f"fedsash: {message}".splitlines():  # a traceback has many
        terminal.complain(line)
    return code


def _show(out: Path) -> int:
    """Print the results of a run in its folder. Returns the exit code."""
    from ...runs.table import tables
    from ...system import files

    summary = files.table(out / "summary.json")
    for table in tables(summary):
        terminal.say()
        terminal.show(table)
    terminal.say(f"\nmetrics, models and the picture of the curves: {out}")
    return exit_code(summary)


def _follow(folder: Path, args: Namespace, rounds: int) -> tuple[int, str]:
    """Submit the app and show the run's progress until it has ended. Returns its exit code and a line.

    A signal that asks to stop stops the run of Flower, and then raises `StoppedError`, unless the run has come to its
    end meanwhile.
    """
    from ...runs.interrupts import StoppedError, stop_flag
    from ...runs.progress import Progress
    from ..served.news import ProgressReader
    from ..served.superlink import SuperLink

    listener = ProgressReader(folder)
    last_news = time.monotonic()
    finished = False
    silence = ""
    with Progress(rounds) as progress, stop_flag(progress.say, "stopping the run of Flower") as stop:
        superlink = SuperLink(args.superlink)
        number = superlink.submit(folder)
        progress.say(f"run {number} of Flower trains {args.experiment} into {args.out}")
        while True:
            time.sleep(0.2)
            for news in listener.news():
                last_news = time.monotonic()
                if "code" in news:
                    return int(news["code"]), news["line"]
                if "note" in news:
                    progress.say(news["note"])
                else:
                    progress.update(news["round"], news["values"])
            if stop:
                break
            if finished:
                log = f"flwr log {number} {args.superlink} --show"
                return WRONG, f"the server's process has ended: `{log}` says why; the same command goes on"
            if time.monotonic() - last_news > LOOK:
                status, reason = superlink.status(number)
                if reason and reason != silence:
                    progress.say(f"no answer from the SuperLink, still waiting: {reason}")
                silence = reason
                finished = status.startswith("finished")
                last_news = time.monotonic()
        line = superlink.stop(number, args.out)
        if any(news.get("code") == OK for news in listener.news()):
            return OK, ""
        progress.say(line)
        raise StoppedError(stop.number)


def _node(args: Namespace) -> int:
    from ...engines import pick_device
    from ..served.apps import data_of
    from ..served.superlink import check_encryption, check_port, environment, program

    pick_device(args.device)
    supernode = program("flower-supernode")
    options = _shell_words(args.supernode)
    if args.state is not None:
        check_folder(args.state)
    check_encryption(args.superlink, options)
    check_port(options)
    data = data_of(args.data, args.number, args.own_code)
    if len(data.clients) > 1:
        data = data.shard([args.number])
    if data.test is not None and not data.client_test:  # with a partition they are the simulation's
        line = "test samples are used with evaluation.client_test only"
        terminal.say(f"of the client's samples {data.sizes.sum():,} are for training; its {len(data.test):,} {line}")
    config = {
        "partition-id": args.number,
        "data": str(args.data.absolute()),
        "device": args.device,
        "own-code": " ".join(args.own_code),
    }
    if args.state is not None:
        config["state"] = str(args.state.absolute())
    for value in map(str, config.values()):
        check('"' not in value, "flower node", value, "must have no \": Flower can't take it")
    text = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in config.items())
    program_of_node = [sys.executable, "-P", "-m", SUPERNODE]  # -P: no file that lies here is a library
    command = [*program_of_node, "--superlink", args.superlink, "--node-config", text, *options]
    os.execve(sys.executable, command, environment(supernode))


def _shell_words(options: list[str]) -> list[str]:
    """The options of `--supernode`, as a shell takes them."""
    text = " ".join(options)
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingError("", "--supernode", text, f"must be options for a shell: {error}") from None


EXAMPLES = """\
examples:
  flower-superlink --insecure --disable-runtime-dependency-installation
  fedsash flower node mine.toml --number 0 --superlink 127.0.0.1:8000 --supernode=--insecure
  fedsash flower serve experiment.toml --out runs/f --clients 4 --superlink lab

lab is a name of your own in ~/.flwr/config.toml:
  [superlink.lab]
  address = "127.0.0.1:8000"
  insecure = true

The same command goes on with a run whose server was stopped or killed. With a client more or fewer it is another run,
a fork of this one:
  fedsash flower serve experiment.toml --out runs/g --clients 5 --superlink lab --fork runs/f@60
"""
