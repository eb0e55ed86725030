"""The best served model by a metric, kept through stops."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.apps import Nodes, arrays, vector
from support.by_default import some

# isort: split
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from fedsash import EMA, RunError, SettingError, Window
from fedsash.flower import Averaged
from fedsash.flower.averaged.best import BestModel

START = arrays(np.zeros(5))
NAN = math.nan


class Judge:
    """An `evaluate_fn` that gives a served model the score of its round, and keeps what it was given."""

    def __init__(self, scores: list[Any], fatal: int | None = None, metric: str = "accuracy") -> None:
        self.scores = scores
        self.fatal = fatal
        self.metric = metric
        self.served: dict[int, np.ndarray[Any, Any]] = {}

    def __call__(self, round: int, record: ArrayRecord) -> MetricRecord | None:
        if round == self.fatal:
            raise KeyboardInterrupt
        self.served[round] = vector(record)
        score = self.scores[round]
        return None if score is None else MetricRecord({self.metric: score})


def trained(judge: Judge, rounds: int, **more: Any) -> Averaged:
    settings = {"averages": {"wima": Window(3), "ema": EMA(0.9)}, "best": ("accuracy", "max")} | more
    random.seed(0)  # Flower draws the order of the nodes
    averaged = Averaged(FedAvg(), **settings)
    averaged.start(Nodes().grid, START, rounds, evaluate_fn=judge)
    return averaged


def best_of(averaged: Averaged) -> BestModel:
    assert averaged.best_model is not None
    return averaged.best_model


@pytest.mark.parametrize(
    ("mode", "scores", "round"),
    [
        ("max", [9.0, 0.2, 0.7, 0.5], 2),  # the initial model does not count
        ("min", [0.0, 0.2, 0.7, 0.5], 1),
        ("max", [0.0, 0.5, 0.7, 0.7], 2),  # of equal ones the earliest
        ("min", [0.0, 0.5, 0.5, 0.7], 1),
        ("max", [0.0, NAN, 0.7, NAN], 2),
        ("min", [0.0, NAN, 0.7, NAN], 2),
        ("max", [0.0, None, 0.7, None], 2),  # not every round is evaluated
        ("max", [0, 1, 2, 1], 2),  # whole numbers
        ("max", [0.0, -math.inf, -1.0, -2.0], 2),
    ],
)
def test_the_best_served_model_is_the_one_that_was_judged_best(mode: Any, scores: list[Any], round: int) -> None:
    judge = Judge(scores)
    averaged = trained(judge, 3, best=("accuracy", mode), evaluate="served")
    best = best_of(averaged)
    assert best.round == round
    assert best.score == scores[round]
    assert np.array_equal(vector(best.arrays), judge.served[round])
    assert np.array_equal(vector(averaged.value("wima")), judge.served[3])


@pytest.mark.parametrize("serve", ["wima", "ema", "model"])
def test_it_is_the_served_one_where_all_are_evaluated(serve: str) -> None:
    judge = Judge([0.0, 0.2, 0.7, 0.5])
    best = best_of(trained(judge, 3, serve=serve))
    assert np.array_equal(vector(best.arrays), judge.served[2])  # the served one is judged last


def test_without_an_evaluate_fn_it_is_chosen_by_the_clients_metric() -> None:
    nodes = Nodes()
    averaged = Averaged(FedAvg(), Window(3), best=("first", "min"))
    result = averaged.start(nodes.grid, START, 5)
    firsts = {round: float(record["first"]) for round, record in result.evaluate_metrics_clientapp.items()}
    best = best_of(averaged)
    assert best.round == min(firsts, key=lambda round: firsts[round])
    assert vector(best.arrays)[0] == pytest.approx(best.score, rel=1e-12)


@pytest.mark.parametrize(
    ("scores", "round"),
    [
        ([0.0, None, 7.0, None, 6.0], 4),  # the clients' numbers are below 6
        ([None, None, 7.0, None, None], 2),  # the best of round 1 was theirs
        ([0.0, None, None, None, None], None),
    ],
)
def test_numbers_of_the_server_and_of_the_clients_are_never_compared(
    scores: list[Any], round: int | None, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"best": ("first", "min"), "folder": tmp_path, "evaluate": "served"}
    for rounds in (1, 4):
        averaged = trained(Judge(scores, metric="first"), rounds, **settings)
    assert (averaged.best_model and averaged.best_model.round) == round


@pytest.mark.parametrize("fatal", some([1, 3, 4, 5], 1, 4))
def test_a_stopped_training_goes_on_with_the_best_model_so_far(fatal: int, tmp_path: Path) -> None:
    scores = [0.0, 0.3, 0.2, 0.9, 0.4, 0.9]
    whole = best_of(trained(Judge(scores), 5))
    with pytest.raises(KeyboardInterrupt):
        trained(Judge(scores, fatal), 5, folder=tmp_path)
    again = best_of(trained(Judge(scores), 5, folder=tmp_path))
    assert (again.round, again.score) == (whole.round, whole.score) == (3, 0.9)
    assert np.array_equal(vector(again.arrays), vector(whole.arrays))
    read = Averaged(FedAvg(), {"wima": Window(3), "ema": EMA(0.9)}, best=("accuracy", "max"), folder=tmp_path)
    read.start(Nodes().grid, START, 0)
    assert np.array_equal(vector(best_of(read).arrays), vector(whole.arrays))


def test_its_file_is_written_once(tmp_path: Path) -> None:
    trained(Judge([0.0, 0.3, 0.9, 0.5, 0.4, 0.1]), 5, folder=tmp_path)
    files = sorted(tmp_path.glob("*/best-*.safetensors"))
    assert [file.name for file in files] == ["best-2.safetensors"] * 2
    assert files[0].stat().st_ino == files[1].stat().st_ino


def test_by_another_metric_or_for_the_first_time_it_is_chosen_anew_and_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scores = [0.0, 0.9, 0.2, 0.5]
    trained(Judge(scores), 1, folder=tmp_path, best=None)
    assert best_of(trained(Judge(scores), 2, folder=tmp_path)).round == 2
    assert "the saved state has no best model: it is the best by accuracy from now on" in caplog.text
    assert best_of(trained(Judge(scores), 3, folder=tmp_path, best=("accuracy", "min"))).round == 3
    assert "the best model so far is by accuracy, max: it is chosen anew from now on" in caplog.text


def test_a_second_start_of_the_same_object_keeps_its_own_best() -> None:
    averaged = trained(Judge([0.0, 0.9]), 1)
    averaged.start(Nodes().grid, START, 1, evaluate_fn=Judge([0.0, 0.1]))
    assert best_of(averaged).score == 0.1


def test_a_metric_that_no_round_has_is_said_once_with_those_there_are(caplog: pytest.LogCaptureFixture) -> None:
    averaged = trained(Judge([0.0, 0.1, 0.2, 0.3]), 3, best=("acuracy", "max"), evaluate="served")
    assert averaged.best_model is None
    line = "Averaged.best: round 1 has no metric 'acuracy'; it has ['accuracy', 'first']"
    assert [record.getMessage() for record in caplog.records if "acuracy" in record.getMessage()] == [line]


def test_a_metric_of_several_numbers_is_refused() -> None:
    with pytest.raises(
        RunError, match=r"^Averaged\.best: the metric 'accuracy' must be a number, and is \[0\.1, 0\.2\]$"
    ):
        trained(Judge([0.0, [0.1, 0.2]]), 1)


@pytest.mark.parametrize("best", ["accuracy", ("accuracy",), ("accuracy", "most"), (1, "max"), 3])
def test_what_is_no_metric_and_mode_is_refused(best: Any) -> None:
    with pytest.raises(
        SettingError, match=r"^Averaged\.best = .*: must be the name of a metric and \"min\" or \"max\""
    ):
        Averaged(FedAvg(), Window(3), best=best)


def test_there_is_no_best_model_unless_it_is_asked_for() -> None:
    averaged = Averaged(FedAvg(), Window(3))
    with pytest.raises(RunError, match=r"^Averaged\.best_model: none is kept without best = "):
        _ = averaged.best_model
    assert Averaged(FedAvg(), Window(3), best=("loss", "min")).best_model is None
