"""Runs that are interrupted or killed lose nothing."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsash import Broadcast, Federation, Fork, run
from fedsash.evaluation import Score
from fedsash.methods import Scaffold
from fedsash.methods.server_optimisers import FedAdam
from fedsash.vector.saved import saved_rounds
from support.observing import Evaluated, final, go_on, interrupting, observed, start
from support.script import Script, gone, shared, tell
from support.worlds import ENGINES, VECTORISED, federation


def test_ctrl_c_ends_the_round_saves_and_can_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(observed(), 6, tmp_path / "whole")
    before = signal.getsignal(signal.SIGINT)
    world = interrupting(observed, step=60)
    result = run(world, 6, out=tmp_path / "stopped")
    assert signal.getsignal(signal.SIGINT) is before
    assert result.interrupted and 1 < result.state.round < 6
    assert saved_rounds(tmp_path / "stopped" / "state") == [result.state.round]
    assert "stopping after this round; press Ctrl-C again to stop at once" in capsys.readouterr().out
    assert json.loads((tmp_path / "stopped" / "summary.json").read_text())["rounds"] == result.state.round
    assert not go_on(interrupting(observed, step=0), 6, tmp_path / "stopped").interrupted
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_ctrl_c_in_the_last_round_interrupts_nothing(tmp_path: Path) -> None:
    def press(round: int, metrics: list[Score]) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    result = start(observed(), 1, tmp_path, callbacks=[Evaluated(press)])
    assert not result.interrupted and result.state.round == 1


def test_ctrl_c_before_the_first_round_saves_the_start(tmp_path: Path) -> None:
    start(observed(), 2, tmp_path / "whole")
    result = start(interrupting(observed, step=1), 2, tmp_path / "stopped")  # a step that the engine takes to try it
    assert result.interrupted and saved_rounds(tmp_path / "stopped" / "state") == [0]
    go_on(interrupting(observed, step=0), 2, tmp_path / "stopped")
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_ctrl_c_twice_stops_at_once_and_can_be_resumed(tmp_path: Path) -> None:
    def press_twice(round: int, metrics: list[Score]) -> None:
        if round == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    start(observed(), 6, tmp_path / "whole", every=3)
    with pytest.raises(KeyboardInterrupt):
        start(observed(), 6, tmp_path / "stopped", every=3, callbacks=[Evaluated(press_twice)])
    assert saved_rounds(tmp_path / "stopped" / "state") == [3, 4]
    go_on(observed(), 6, tmp_path / "stopped", every=3)
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_a_run_in_another_thread_leaves_ctrl_c_alone() -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(federation(), 2, progress=False)))
    thread.start()
    thread.join()
    assert results[0].state.round == 2


# Runs that are killed.

COMPILED = replace(VECTORISED, compile=True)


def killed_world(engine: str) -> Federation:
    """The script's federation: all kinds of state are in it."""
    engines = ENGINES | {"compiled": COMPILED}
    return observed(engine=engines[engine], method=Scaffold(), server=FedAdam(), broadcast=Broadcast("window", start=4))


def train(out: str, engine: str, rounds: int, every: int = 3, source: str | None = None) -> None:
    """Start or resume a run, and tell every round."""
    settings: dict[str, Any] = {"every": every, "callbacks": [Evaluated(lambda round, metrics: tell("round", round))]}
    world, folder = killed_world(engine), Path(out)
    if (folder / "metrics.jsonl").exists():
        result = go_on(world, rounds, folder, **settings)
    else:
        result = start(world, rounds, folder, fork=Fork(source, 4) if source else None, **settings)
    tell("interrupted" if result.interrupted else "finished")


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Iterator[Script]:
    yield from shared(request, __name__, "train")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_gone(pids: list[int]) -> None:
    """If one of them stays, the test takes too long."""
    while not all(map(gone, pids)):
        time.sleep(0.05)


def survives_kills(script: Script, engine: str, tmp_path: Path, kills: int) -> None:
    """Kill a run again and again at random moments; in the end it is the run that was not killed."""
    rounds, whole, killed = 15 * kills, tmp_path / "whole", tmp_path / "killed"
    script.begin(out=whole, engine=engine, rounds=rounds)
    assert int(script.wait_for("ended")) == 0
    for i in range(kills):
        pid = script.begin(out=killed, engine=engine, rounds=rounds)
        if i % 2:  # in the midst of its rounds; otherwise at any moment from its beginning on
            script.wait_for("round", "finished")
        time.sleep(random.uniform(0, 0.3))
        workers: list[int] = []
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have come to its end before
            workers = children(pid)
            os.kill(pid, signal.SIGKILL)
        code = int(script.wait_for("ended"))
        assert code == -signal.SIGKILL or (code == 0 and i > 0)
        wait_until_gone(workers)
    script.begin(out=killed, engine=engine, rounds=rounds)
    assert int(script.wait_for("ended")) == 0
    assert final(killed) == final(whole)
    leftovers = [path for path in killed.rglob("*") if path.name.startswith(".") or "tmp" in path.name]
    assert not leftovers and saved_rounds(killed / "state") == saved_rounds(whole / "state")


@pytest.mark.parametrize(
    "engine", ["sequential", *(pytest.param(name, marks=pytest.mark.slow) for name in ("vectorised", "workers"))]
)
def test_kill_minus_nine_at_any_moment_changes_nothing(engine: str, script: Script, tmp_path: Path) -> None:
    survives_kills(script, engine, tmp_path, kills=2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*ENGINES, "compiled"])
def test_many_kills_at_any_moment_change_nothing(engine: str, script: Script, tmp_path: Path) -> None:
    if engine == "compiled" and shutil.which("g++") is None:
        pytest.skip("compiling needs a C++ compiler")
    survives_kills(script, engine, tmp_path, kills=15)


def test_no_worker_outlives_a_killed_run(script: Script, tmp_path: Path) -> None:
    pid = script.begin(out=tmp_path, engine="workers", rounds=1000)
    script.wait_for("round")
    workers = children(pid)
    assert len(workers) == 2 and not any(map(gone, workers))
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(workers)
    script.wait_for("ended")


def test_a_fork_killed_before_its_first_own_save_resumes_from_the_fork(script: Script, tmp_path: Path) -> None:
    source, whole, killed = tmp_path / "source", tmp_path / "whole", tmp_path / "killed"
    start(killed_world("sequential"), 6, source, every=4)
    start(killed_world("sequential"), 40, whole, fork=Fork(source, 4))
    pid = script.begin(out=killed, engine="sequential", rounds=40, every=1000, source=source)
    assert script.wait_for("round") == "5"
    os.kill(pid, signal.SIGKILL)
    assert int(script.wait_for("ended")) == -signal.SIGKILL
    assert saved_rounds(killed / "state") == [4]
    go_on(killed_world("sequential"), 40, killed, every=1000)
    assert final(killed) == final(whole)


def test_ctrl_c_to_a_run_and_its_workers_ends_after_the_round(script: Script, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    start(killed_world("sequential"), 40, whole)
    pid = script.begin(out=stopped, engine="workers", rounds=40, every=1000)
    script.wait_for("round")
    workers = children(pid)
    os.killpg(pid, signal.SIGINT)  # as a terminal does, to the whole group
    script.wait_for("interrupted")
    assert int(script.wait_for("ended")) == 0
    assert len(workers) == 2 and len(saved_rounds(stopped / "state")) == 1
    wait_until_gone(workers)
    go_on(killed_world("workers"), 40, stopped)
    assert final(stopped) == final(whole)


def test_nothing_is_logged_by_a_run_in_which_nothing_goes_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(observed(), 3, progress=False)
    assert not caplog.messages
