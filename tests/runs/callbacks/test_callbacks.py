"""What callbacks see, in which order, and what happens when they stop or break a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash import Callback, Evaluation, Result, Score, SettingError, Window, run
from fedsash.client.messages import RoundReport
from fedsash.extend import LiveRun
from fedsash.runs import UnknownModelError
from fedsash.runs.callbacks import CALLBACKS
from fedsash.testing import check_callback
from support.by_default import full, some
from support.observing import Crash, final, go_on, observed, start
from support.worlds import federation


class Diary(Callback):
    """Writes down what it is called for."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, run: LiveRun) -> None:
        self.lines.append(f"begin {run.round} of {run.rounds}{' again' * run.resumed}")

    def round(self, run: LiveRun, report: RoundReport) -> None:
        assert report.round == run.round == run.state.round
        self.lines.append(f"round {run.round}")

    def evaluation(self, run: LiveRun, metrics: list[Score]) -> None:
        assert {m.round for m in metrics} == {run.round}
        self.lines.append(f"evaluation {run.round}")

    def end(self, run: LiveRun, result: Result | None) -> None:
        self.lines.append("broken" if result is None else f"end {result.state.round}")


class StopAt(Callback):
    def __init__(self, at: int, moment: str = "round") -> None:
        self.at, self.moment = at, moment

    def begin(self, run: LiveRun) -> None:
        self._stop(run, "begin")

    def round(self, run: LiveRun, report: RoundReport) -> None:
        self._stop(run, "round")

    def evaluation(self, run: LiveRun, metrics: list[Score]) -> None:
        self._stop(run, "evaluation")

    def _stop(self, run: LiveRun, moment: str) -> None:
        if run.round == self.at and moment == self.moment:
            run.stop("enough")


class Breaks(Callback):
    """Raises once, at a moment of a round."""

    def __init__(self, moment: str, at: int) -> None:
        self.at, self.moment = at, moment

    def begin(self, run: LiveRun) -> None:
        self._crash(run, "begin")

    def round(self, run: LiveRun, report: RoundReport) -> None:
        self._crash(run, "round")

    def evaluation(self, run: LiveRun, metrics: list[Score]) -> None:
        self._crash(run, "evaluation")

    def end(self, run: LiveRun, result: Result | None) -> None:
        self._crash(run, "end")

    def _crash(self, run: LiveRun, moment: str) -> None:
        if self.moment == moment and (run.round == self.at or moment == "end"):
            raise Crash


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(observed(), 6, folder)
    return folder


def test_they_are_called_in_order_in_every_session(tmp_path: Path) -> None:
    diary, world = Diary(), federation(averages={"w": Window(2)}, evaluation=Evaluation(every=2, last=1))
    start(world, 5, tmp_path, callbacks=[diary], until=2)
    go_on(world, 5, tmp_path, callbacks=[diary])
    first = ["begin 0 of 5", "round 1", "evaluation 2", "round 2", "end 2"]
    second = ["begin 2 of 5 again", "round 3", "evaluation 4", "round 4", "evaluation 5", "round 5", "end 5"]
    assert diary.lines == first + second


def test_they_see_the_state_the_rows_and_any_model(tmp_path: Path) -> None:
    class Looks(Callback):
        seen = 0

        def evaluation(self, run: LiveRun, metrics: list[Score]) -> None:
            assert run.models == tuple(run.vectors()) and run.models[:2] == ("model", "window")
            assert torch.equal(run.vectors()["model"], run.state.w)
            w = run.federation.models(run.state)["ema"]
            assert torch.equal(torch.cat([p.reshape(-1) for p in run.model("ema").parameters()]), w)
            assert [m.row() for m in metrics] == [row for row in run.history.rows() if row["round"] == run.round]
            assert set(run.curves().models["ema"]) == set(range(1, run.round + 1))
            with pytest.raises(UnknownModelError):
                run.state_dict("unknown")
            assert run.folder == tmp_path and run.config == {} and len(run.id) == 32
            self.seen += 1

    looks = Looks()
    start(observed(), 3, tmp_path, callbacks=[looks])
    assert looks.seen == 3


@pytest.mark.parametrize("moment", some(["round", "evaluation", "begin"], "round", "begin"))
def test_a_stopped_run_is_finished_and_goes_on_to_the_same_bytes(moment: str, whole: Path, tmp_path: Path) -> None:
    at = 0 if moment == "begin" else 4
    result = start(observed(), 6, tmp_path, callbacks=[StopAt(at, moment)])
    assert result.state.round == at and not result.interrupted
    assert result.summary["ended_early"] == "enough"
    assert json.loads((tmp_path / "summary.json").read_text())["rounds"] == at
    assert f"ended after round {at}: enough" in repr(result)
    result = go_on(observed(), 6, tmp_path)
    assert result.summary["ended_early"] == "" and final(tmp_path) == final(whole)


def test_a_run_that_is_stopped_in_its_last_round_has_not_ended_early() -> None:
    result = run(observed(), 3, progress=False, callbacks=[StopAt(3)])
    assert result.summary["ended_early"] == "" and not result.interrupted


@pytest.mark.parametrize(("moment", "at"), [full("begin", 0), ("round", 4), full("evaluation", 4), ("end", 6)])
def test_a_broken_run_is_saved_and_goes_on_to_the_same_bytes(moment: str, at: int, whole: Path, tmp_path: Path) -> None:
    diary = Diary()
    with pytest.raises(Crash):
        start(observed(), 6, tmp_path, callbacks=[diary, Breaks(moment, at)])
    assert diary.lines[-1] == ("end 6" if moment == "end" else "broken")
    again = Diary()
    go_on(observed(), 6, tmp_path, callbacks=[again])
    assert again.lines[0] == f"begin {at} of 6 again" and final(tmp_path) == final(whole)


def test_what_has_not_begun_does_not_end(tmp_path: Path) -> None:
    diary = Diary()
    with pytest.raises(Crash):
        start(observed(), 6, tmp_path, callbacks=[Breaks("begin", 0), diary])
    assert diary.lines == []


def test_one_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Picky(Callback):
        def fits(self, federation: Any) -> None:
            raise SettingError("", "it", 1, "must be 2")

    with pytest.raises(SettingError, match="it = 1: must be 2"):
        start(observed(), 6, tmp_path / "run", callbacks=[Picky()])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "callback",
    [Diary(), StopAt(2), pytest.param(StopAt(5, "evaluation"), marks=pytest.mark.full)],
    ids=lambda it: type(it).__name__,
)
def test_those_of_ones_own_keep_the_identities(callback: Callback) -> None:
    if isinstance(callback, StopAt) and callback.at == 2:
        with pytest.raises(AssertionError, match="a resumed run must end as the one without a stop"):
            check_callback(callback)  # it forgets that it has stopped the run
    else:
        check_callback(callback)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in ("early_stopping", "export_best", "tensorboard") else ())
        for name in CALLBACKS
    ],
)
def test_every_callback_of_the_library_keeps_the_identities(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tmp_path.as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    if name in ("wandb", "mlflow", "tensorboard", "trackio"):
        pytest.importorskip(name)
    check_callback(CALLBACKS[name]())


class Counts(Callback):
    """Counts in memory, which a new process does not have."""

    seen = 0

    def begin(self, run: LiveRun) -> None:
        if not run.round:
            self.seen = 0

    def evaluation(self, run: LiveRun, metrics: list[Score]) -> None:
        self.seen += 1
        if self.seen == 5:
            run.stop("five evaluations")


class Adds(Callback):
    """Adds to the history of the run."""

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        run.history.add([replace(score, loss=0.0, values={}) for score in scores])


class Pushes(Callback):
    """Changes what the server remembers of the method."""

    def evaluation(self, run: LiveRun, metrics: list[Score]) -> None:
        for value in run.state.server_state.values():
            value += 1


@pytest.mark.parametrize(
    ("callback", "line"),
    [
        (Counts(), "a resumed run"),
        (Adds(), "it must only observe"),
        pytest.param(Pushes(), "it must only observe", marks=pytest.mark.full),
    ],
)
def test_one_that_forgets_or_interferes_is_found(callback: Callback, line: str) -> None:
    with pytest.raises(AssertionError, match=line):
        check_callback(callback)
