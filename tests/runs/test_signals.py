"""Ctrl-C, SIGTERM and SIGHUP: the round is finished and saved, and the exit code says which it was."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedsash import run
from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.runs import interrupts
from fedsash.runs.interrupts import StoppedError
from fedsash.runs.records import Records
from fedsash.system.subprocesses import STOPS
from fedsash.vector.saved import saved_rounds
from support.by_default import some
from support.experiments import file_with
from support.observing import Evaluated, final, go_on, observed, start
from support.script import Script, shared, tell

NO_NOHUP = pytest.mark.skipif(
    signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="SIGHUP is ignored, as by nohup"
)

EXPERIMENT = """rounds = 1000
[checkpoint]
every = 400
[engine]
kind = "sequential"
workers = 2
compile = false
memory_format = "contiguous"
threads = 1
"""


def command(words: list[str]) -> None:
    """Run a command, and tell its exit code; its own output is left out."""
    told = os.dup(1)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    code = main(words)
    os.write(told, f"code {code}\n".encode())


def in_terminal(words: list[str], out: str) -> None:
    """Run a command in a terminal that is closed after a few rounds, and tell its exit code."""
    told, os.environ["TERM"] = os.dup(1), "xterm"
    leader, follower = os.openpty()
    terminal = os.open(os.ttyname(follower), os.O_RDWR)  # that of this session, from now on
    for stream in (0, 1, 2):
        os.dup2(terminal, stream)
    os.close(follower)
    os.close(terminal)
    threading.Thread(target=close_later, args=(leader, Path(out)), daemon=True).start()
    code = main(words)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.write(told, f"code {code}\n".encode())


def close_later(leader: int, out: Path) -> None:
    while not Records(out).load().rows():
        os.read(leader, 1 << 16)
    os.close(leader)


def act(what: str, **order: Any) -> None:
    """Do one of these for the script."""
    {"command": command, "in_terminal": in_terminal, "train": train}[what](**order)


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Iterator[Script]:
    yield from shared(request, __name__, "act")


def wait_for_rows(out: Path) -> None:
    while not Records(out).load().rows():
        time.sleep(0.02)


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n == signal.SIGTERM else pytest.mark.slow) for n in STOPS]
)
def test_a_signal_to_the_whole_group_ends_a_command_after_its_round(
    number: int, script: Script, tmp_path: Path
) -> None:
    file, out = file_with(EXPERIMENT, tmp_path), tmp_path / "out"
    pid = script.begin(what="command", words=["run", str(file), "--out", str(out)])
    wait_for_rows(out)
    os.killpg(pid, number)
    assert int(script.wait_for("code")) == 128 + number
    assert int(script.wait_for("ended")) == 0
    (round,) = saved_rounds(out / "state")
    assert 0 < round < 400 and (out / "summary.json").exists()


@NO_NOHUP
def test_a_closed_terminal_loses_nothing(script: Script, tmp_path: Path) -> None:
    file, out = file_with(EXPERIMENT, tmp_path), tmp_path / "out"
    alone = ["--set", "engine.workers=1"]  # a worker would hold the terminal open
    script.begin(what="in_terminal", words=["run", str(file), "--out", str(out), *alone], out=out)
    assert int(script.wait_for("code")) == 128 + signal.SIGHUP
    assert int(script.wait_for("ended")) == 0
    (round,) = saved_rounds(out / "state")
    assert 0 < round < 400 and (out / "summary.json").exists()


def pressing(*numbers: int, at: int) -> Evaluated:
    def press(round: int, metrics: list[Score]) -> None:
        if round == at:
            for number in numbers:
                os.kill(os.getpid(), number)

    return Evaluated(press)


@NO_NOHUP
@pytest.mark.parametrize("number", some(STOPS, signal.SIGHUP))
def test_a_result_names_the_signal_and_the_handlers_are_those_before(number: int, tmp_path: Path) -> None:
    start(observed(), 4, tmp_path / "whole")
    before = signal.getsignal(number)
    result = start(observed(), 4, tmp_path / "stopped", callbacks=[pressing(number, at=2)])
    assert result.interrupted and result.signal == number and signal.getsignal(number) is before
    assert not go_on(observed(), 4, tmp_path / "stopped").signal
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_the_echo_of_a_signal_is_no_second_one_but_ctrl_c_is(monkeypatch: pytest.MonkeyPatch) -> None:
    echoes = pressing(signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, at=1)
    assert run(observed(), 3, progress=False, callbacks=[echoes]).state.round == 1
    with pytest.raises(StoppedError) as stopped:
        run(observed(), 3, progress=False, callbacks=[pressing(signal.SIGTERM, signal.SIGINT, at=1)])
    assert stopped.value.number == signal.SIGINT
    monkeypatch.setattr(interrupts, "ECHO", 0.0)
    with pytest.raises(StoppedError) as stopped:
        run(observed(), 3, progress=False, callbacks=[pressing(signal.SIGTERM, signal.SIGTERM, at=1)])
    assert stopped.value.number == signal.SIGTERM


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = run(observed(), 3, progress=False, callbacks=[pressing(signal.SIGHUP, at=1)])
        assert result.state.round == 3 and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def train(out: str, rounds: int) -> None:
    """Start a run or go on with it; at two signals it ends at once."""
    folder, begun = Path(out), (Path(out) / "metrics.jsonl").exists()
    callbacks = [Evaluated(lambda round, metrics: tell("round", round))]
    with suppress(KeyboardInterrupt):
        result = (go_on if begun else start)(observed(), rounds, folder, every=7, callbacks=callbacks)
        tell("interrupted" if result.interrupted else "finished")


@pytest.mark.slow
def test_two_signals_at_any_moment_change_nothing(script: Script, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    script.begin(what="train", out=whole, rounds=40)
    assert int(script.wait_for("ended")) == 0
    for moment in (0.003, 0.01, 0.03, 0.1):
        pid = script.begin(what="train", out=stopped, rounds=40)
        script.wait_for("round", "finished")
        time.sleep(moment)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
        script.wait_for("ended")
    script.begin(what="train", out=stopped, rounds=40)
    script.wait_for("ended")
    assert final(stopped) == final(whole)
