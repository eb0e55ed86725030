"""`fedsash flower`: serve an experiment file to the nodes of a Flower federation, and start a node."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import tempfile
import time
from pathlib import Path
from typing import Any

from ...basics.paths import check_folder
from ...runs import terminal
from ...settings.errors import SettingError, check, check_count, check_positive
from .common import OK, RUNS, WRONG, Commands, add_set, check_out, finished, load_given, place

LOOK = 15.0
"""After so many seconds without news Flower is asked whether the run goes on, each time by a process of its own."""


def add(commands: Commands) -> None:
    """Add the commands."""
    flower = commands.add_parser("flower", help="train over the nodes of a Flower federation", epilog=EXAMPLES)
    group = flower.add_subparsers(title="commands", metavar="COMMAND", required=True)

    serve = group.add_parser("serve", help="serve the experiment in a file to the nodes, or go on with its run")
    serve.add_argument("experiment", type=Path, help="experiment file (TOML)")
    line = "folder for the run, on the SuperLink's machine (default: runs/NAME-flower, after the file)"
    serve.add_argument("--out", type=place, metavar="DIR", help=line)
    serve.add_argument("--clients", type=int, required=True, metavar="N", help="how many clients the nodes hold")
    line = "the SuperLink's name in ~/.flwr/config.toml"
    serve.add_argument("--superlink", required=True, metavar="NAME", help=line)
    line = "seconds that a round waits for answers (default: 600)"
    serve.add_argument("--deadline", type=float, default=600.0, metavar="S", help=line)
    line = "seconds that the beginning waits for nodes (default: 120)"
    serve.add_argument("--roll-call", type=float, default=120.0, metavar="S", help=line)
    line = "skip a round with fewer usable uploads (default: 1)"
    serve.add_argument("--minimum", type=int, default=1, metavar="N", help=line)
    line = "with an asynchronous scheduler: at most so many clients train at a time (default: all)"
    serve.add_argument("--limit", type=int, metavar="N", help=line)
    add_set(serve)
    serve.set_defaults(command=_serve, federation="")

    node = group.add_parser("node", help="start a node on its own data")
    line = "file with [data]; with a [partition], this node has its share of the samples"
    node.add_argument("data", type=Path, help=line)
    node.add_argument("--number", type=int, required=True, metavar="I", help="the number of this node's client, from 0")
    node.add_argument("--superlink", required=True, metavar="ADDRESS", help="host:port of the SuperLink")
    node.add_argument("--state", type=place, help="folder for the client's state (default: ~/.fedsash/clients)")
    line = "the device that trains: cpu, cuda, auto ... (default: cpu)"
    node.add_argument("--device", default="cpu", metavar="NAME", help=line)
    line = "code of yours that the server may name; can be repeated"
    node.add_argument("--own-code", action="append", default=[], metavar="PACKAGE.MODULE:NAME", help=line)
    line = "other options of flower-supernode: --supernode='--insecure --port 8001'; can be repeated"
    node.add_argument("--supernode", default=[], action="append", metavar="OPTIONS", help=line)
    node.set_defaults(command=_node)


def _serve(given: argparse.Namespace) -> int:
    try:
        return _served(given)
    except KeyboardInterrupt as stop:
        stop.add_note("the same command goes on")
        raise


def _served(given: argparse.Namespace) -> int:
    from ...flower import Waiting
    from ..config import ConfigError
    from ..served.apps import write_app

    given.out = given.out or RUNS / f"{given.experiment.stem}-flower"  # always the same: the same command goes on
    check_out(given.out, new=False)
    check_count("--clients", given.clients)
    experiment = load_given(given)
    if experiment.stateless:
        raise ConfigError("network.learning = False: nobody trains", "network.learning", file=str(given.experiment))
    check_positive("--deadline", given.deadline, "in seconds")
    check_positive("--roll-call", given.roll_call, "in seconds")
    check_count("--minimum", given.minimum)
    waiting = Waiting(deadline=given.deadline, roll_call=given.roll_call, minimum=given.minimum)
    check_count("--limit", given.limit)
    with tempfile.TemporaryDirectory(prefix="fedsash-") as temporary:
        folder = Path(temporary)
        write_app(folder, experiment, given.out, given.clients, waiting, given.limit)
        ended = _followed(folder, given, experiment.rounds)
    return _told(given, ended)


def _told(given: argparse.Namespace, ended: dict[str, Any]) -> int:
    """Print how a run ended; returns the exit code."""
    from ...basics import files
    from ...runs.table import tables

    if ended["code"] != OK:
        for line in f"fedsash: {ended['line']}".splitlines():  # a traceback has many
            terminal.complain(line)
        return int(ended["code"])
    summary = files.table(given.out / "summary.json")
    for shown in tables(summary):
        terminal.say()
        terminal.show(shown)
    terminal.say(f"\nmetrics, models and the picture of the curves: {given.out}")
    return finished(summary)


def _followed(folder: Path, given: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """Submit the app and show the run's progress until it has ended; returns its exit code and a line.

    A signal that asks to stop stops the run of Flower, and then raises `StoppedError`.
    """
    from ...runs.interrupts import StoppedError, stop_flag
    from ...runs.progress import Progress
    from ..served.news import Listener
    from ..served.superlink import SuperLink

    listener, heard, over, told = Listener(folder), time.monotonic(), False, ""
    with Progress(rounds) as progress, stop_flag(progress.say, "stopping the run of Flower") as stop:
        superlink = SuperLink(given.superlink)
        number = superlink.submit(folder)
        progress.say(f"run {number} of Flower trains {given.experiment} into {given.out}")
        while not stop:
            time.sleep(0.2)
            for news in listener.news():
                heard = time.monotonic()
                if "code" in news:
                    return news
                if "note" in news:
                    progress.say(news["note"])
                else:
                    progress.update(news["round"], news["values"])
            if over:
                why = f"flwr log {number} {given.superlink} --show"
                line = f"the server's process has ended: `{why}` says why; the same command goes on"
                return {"code": WRONG, "line": line}
            if time.monotonic() - heard > LOOK:
                status, silent = superlink.status(number)
                if silent and silent != told:
                    progress.say(f"no answer from the SuperLink, still waiting: {silent}")
                heard, over, told = time.monotonic(), status.startswith("finished"), silent
        progress.say(superlink.stop(number, given.out))
        raise StoppedError(stop.number)


def _node(given: argparse.Namespace) -> int:
    from ...executors import pick_device
    from ..served.apps import data_of
    from ..served.superlink import environment, program

    pick_device(given.device)
    supernode, more = program("flower-supernode"), _words(given.supernode)
    if given.state is not None:
        check_folder(given.state)
    whole = data_of(given.data, given.number, given.own_code)
    data = whole if len(whole.clients) == 1 else whole.shard([given.number])
    if data.test is not None and not data.client_test:  # with a partition they are the simulation's
        line = "test samples are used with evaluation.client_test only"
        terminal.say(f"of the client's samples {data.sizes.sum():,} are for training; its {len(data.test):,} {line}")
    config = {"partition-id": given.number, "data": str(given.data.absolute()), "device": given.device}
    config["own-code"] = " ".join(given.own_code)
    if given.state is not None:
        config["state"] = str(given.state.absolute())
    for value in map(str, config.values()):
        check('"' not in value, "flower node", value, "must have no \": Flower can't take it")
    text = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in config.items())
    command = [supernode, "--superlink", given.superlink, "--node-config", text, *more]
    os.execve(supernode, command, environment(supernode))


def _words(options: list[str]) -> list[str]:
    """The options of `--supernode`, as a shell takes them."""
    try:
        return shlex.split(" ".join(options))
    except ValueError as error:
        raise SettingError("", "--supernode", " ".join(options), f"must be options for a shell: {error}") from None


EXAMPLES = """\
examples:
  flower-superlink --insecure --disable-runtime-dependency-installation
  fedsash flower node mine.toml --number 0 --superlink 127.0.0.1:8000 --supernode=--insecure
  fedsash flower serve experiment.toml --out runs/f --clients 4 --superlink lab

lab is a name of your own in ~/.flwr/config.toml:
  [superlink.lab]
  address = "127.0.0.1:8000"
  insecure = true

The same command goes on with a run whose server was stopped or killed.
"""
