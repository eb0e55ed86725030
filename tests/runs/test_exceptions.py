"""A run that an exception has ended goes on from its last round, to the bytes of a run without one."""

from __future__ import annotations

import os
import random
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fedsash import Broadcast, Evaluation, Federation, Fork
from fedsash.methods import Scaffold
from fedsash.methods.server_optimisers import FedAdam
from fedsash.runs.folder import RunFolder
from fedsash.runs.records import Records
from fedsash.runs.running_sums import RunningSums, SumRecorder
from fedsash.server.round import ServerRound
from fedsash.vector.saved import saved_rounds
from support.observing import Crash, Evaluated, crash_at, failing, final, go_on, observed, rows, start

ROUNDS, EVERY = 7, 3
ADAPTIVE = Broadcast(("window", "ema"), start="auto", patience=1)


def world(**settings: Any) -> Federation:
    """A federation whose evaluations matter: they choose what the clients receive."""
    judged = Evaluation(every=1, last=1, held_out=0.3)
    defaults = {"method": Scaffold(), "server": FedAdam(), "broadcast": ADAPTIVE, "evaluation": judged}
    return observed(**defaults | settings)


SUMS: dict[str, Any] = {"trajectory": RunningSums(2)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run without an exception."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(world(), ROUNDS, folder, every=EVERY, **SUMS)
    return folder


def assert_resumed(stopped: Path, whole: Path) -> None:
    result = go_on(world(), ROUNDS, stopped, every=EVERY, **SUMS)
    assert final(stopped) == final(whole) and result.history.rows() == rows(whole)
    sums, ours = ({path.name: path.read_bytes() for path in (run / "trajectory").iterdir()} for run in (whole, stopped))
    assert ours == sums


UNTOUCHED = [(ServerRound, "ask", "before"), (ServerRound, "ask", "after"), (ServerRound, "collect", "before")]
UNTOUCHED += [(ServerRound, "collect", "after"), (ServerRound, "step", "before")]
IN_PLACE = [(ServerRound, "observe", "before"), (ServerRound, "observe", "after"), (ServerRound, "step", "after")]
IN_PLACE += [(SumRecorder, "observe", "before"), (SumRecorder, "observe", "after")]
FINISHED = [(Federation, "evaluate", "before"), (Federation, "evaluate", "after"), (Federation, "learn", "before")]
FINISHED += [(Federation, "learn", "after"), (Records, "append", "before"), (Records, "append", "after")]


FULL = [(ServerRound, "ask", "after"), (ServerRound, "collect", "before"), (ServerRound, "observe", "before")]
FULL += [(SumRecorder, "observe", "before"), (Federation, "evaluate", "after"), (Federation, "learn", "before")]
FULL += [(ServerRound, "collect", "after"), (ServerRound, "step", "after"), (Records, "append", "before")]
"""Whose neighbours are tried by default."""


def phases(*cases: Any) -> Any:
    cases = tuple(pytest.param(*case, marks=pytest.mark.full if case in FULL else ()) for case in cases)
    return pytest.mark.parametrize(("owner", "name", "when"), cases, ids=lambda it: getattr(it, "__name__", it))


def crash(owner: type, name: str, when: str, stopped: Path, patch: pytest.MonkeyPatch) -> int:
    """A run in which a method raises; returns the round in which it did."""
    at = random.randint(1, ROUNDS)
    with patch.context() as patched, pytest.raises(Crash) as error:
        failing(owner, name, at, when, patched)
        start(world(), ROUNDS, stopped, every=EVERY, **SUMS)
    assert error.value.__notes__ == [f"go on with: fedsash.resume(federation, rounds, {str(stopped)!r})"]
    return at


@phases(*UNTOUCHED)
def test_before_anything_is_changed_the_round_before_is_saved(
    owner: type, name: str, when: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = crash(owner, name, when, tmp_path, monkeypatch)
    assert saved_rounds(tmp_path / "state")[-1] == at - 1
    assert_resumed(tmp_path, whole)


@phases(*IN_PLACE)
def test_a_state_that_is_being_changed_is_not_saved(
    owner: type, name: str, when: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = crash(owner, name, when, tmp_path, monkeypatch)
    assert saved_rounds(tmp_path / "state") == [r for r in (3, 6) if r < at]
    assert_resumed(tmp_path, whole)


@phases(*FINISHED)
def test_a_finished_round_is_saved_and_evaluated_later(
    owner: type, name: str, when: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = crash(owner, name, when, tmp_path, monkeypatch)
    assert saved_rounds(tmp_path / "state")[-1] == at
    assert_resumed(tmp_path, whole)


def test_an_evaluation_may_fail_twice_and_a_fork_makes_it_too(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, fork, forked = tmp_path / "stopped", tmp_path / "fork", tmp_path / "forked"
    with monkeypatch.context() as patched, pytest.raises(Crash):
        failing(Federation, "evaluate", 6, "before", patched)
        start(world(), ROUNDS, stopped, every=EVERY, **SUMS)
    start(world(), ROUNDS, fork, every=EVERY, fork=Fork(stopped, 6), **SUMS)
    with monkeypatch.context() as patched, pytest.raises(Crash):
        failing(Federation, "evaluate", 1, "after", patched)
        go_on(world(), ROUNDS, stopped, every=EVERY, **SUMS)
    assert_resumed(stopped, whole)
    start(world(), ROUNDS, forked, every=EVERY, fork=Fork(whole, 6), **SUMS)
    assert final(fork) == final(forked)


def test_half_a_row_on_a_full_disk_is_removed(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append, calls = Records.append, count(1)

    def torn(self: Records, rows: list[dict[str, Any]]) -> None:
        append(self, rows)
        if next(calls) == 5:
            os.truncate(self.path, self.path.stat().st_size - 20)
            raise OSError("No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(Records, "append", torn)
        start(world(), ROUNDS, tmp_path, every=EVERY, **SUMS)
    assert_resumed(tmp_path, whole)


def test_a_callback_that_raises_is_called_once_for_its_round(whole: Path, tmp_path: Path) -> None:
    called: list[int] = []
    for at in (1, 3, 5):
        with pytest.raises(Crash):
            (go_on if called else start)(
                world(),
                ROUNDS,
                tmp_path,
                every=EVERY,
                callbacks=[Evaluated(lambda round, metrics: called.append(round)), crash_at(at)],
                **SUMS,
            )
        assert saved_rounds(tmp_path / "state")[-1] == at
    assert called == [1, 2, 3, 4, 5]
    assert_resumed(tmp_path, whole)


def test_a_state_that_could_not_be_saved_is_tried_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, pytest.raises(Crash):
        failing(RunFolder, "save", 2, "before", patched)
        start(world(), ROUNDS, tmp_path, every=EVERY, **SUMS)
    assert saved_rounds(tmp_path / "state") == [3, 6]
    assert_resumed(tmp_path, whole)


def test_where_nothing_can_be_saved_the_first_exception_is_seen(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save

    def full(self: RunFolder, driver: Any, state: Any, *others: Any) -> int:
        if state.round > 3:
            raise OSError("No space left on device")
        return save(self, driver, state, *others)

    with monkeypatch.context() as patched, pytest.raises(Crash) as error:
        patched.setattr(RunFolder, "save", full)
        start(world(), ROUNDS, tmp_path, every=EVERY, callbacks=[crash_at(5)], **SUMS)
    line = "the state after round 5 could not be saved, so resume goes back to round 3: No space left on device"
    assert error.value.__notes__[0] == line
    assert saved_rounds(tmp_path / "state") == [3]
    assert_resumed(tmp_path, whole)


def test_an_exception_of_the_start_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(Federation, "prepare", 1, "before", monkeypatch)
    with pytest.raises(Crash) as error:
        start(world(), ROUNDS, tmp_path / "run")
    assert not hasattr(error.value, "__notes__") and not (tmp_path / "run").exists()
