"""Curves: the values of the metric that decides, from a run's rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from fedsash.evaluation import History, Score
from fedsash.tasks import Criterion
from support.histories import history_of

RMSE = Criterion("rmse", "lower", share=False, target=None)


def row(round: int, value: float | None, split: str = "test", model: str = "model") -> dict[str, Any]:
    return {"round": round, "model": model, "split": split, "rmse": value, "loss": 1.0}


def test_a_round_evaluated_twice_counts_once() -> None:
    found = history_of([row(2, 0.1), row(1, 0.2), row(2, 0.3)]).curves(RMSE)
    assert list(found.models["model"].items()) == [(1, 0.2), (2, 0.3)]


def test_the_test_set_comes_before_held_out_data_and_clients_have_no_curve() -> None:
    rows = [row(1, 3.0, "clients"), row(1, 2.0, "held_out")]
    assert history_of(rows).curves(RMSE).title == "rmse on held-out data"
    both = history_of([*rows, row(1, 1.0)]).curves(RMSE)
    assert (both.title, both.models) == ("rmse on the test set", {"model": {1: 1.0}})
    assert history_of([*rows, row(1, 1.0)]).curves(RMSE, "held_out").models == {"model": {1: 2.0}}
    assert not history_of(rows[:1]).curves(RMSE)


def test_what_is_not_finite_or_not_there_is_nan_in_memory_as_from_the_file() -> None:
    for value in (None, math.nan, math.inf, -math.inf):
        assert math.isnan(history_of([row(1, value)]).curves(RMSE).models["model"][1])
    assert math.isnan(history_of([row(1, 0.5)]).curves(Criterion("f1")).models["model"][1])


def score(round: int, value: float, **more: Any) -> Score:
    return Score(round=round, model="model", split="test", values={"rmse": value}, more=more)


def test_the_first_score_at_the_target_is_the_one_that_reached_it() -> None:
    history = History([score(1, 2.0), score(2, 0.5), score(3, 2.0), score(4, 0.25)])
    assert history.reached(replace(RMSE, target=0.5)) == {"model": history[1]}
    assert history.reached(replace(RMSE, target=0.1)) == {}


def test_means_over_clients_are_of_the_last_evaluations_and_counts_of_the_last_one() -> None:
    numbers = {"client_mean": 1.0, "worst_tenth": 1.0, "client_std": 0.0, "worst_client": 1.0}
    counts = {"scored": 3, "without_samples": 1, "undefined": 0}
    fewer = {"scored": 2, "without_samples": 1, "undefined": 1}
    history = History([score(1, 1.0, **numbers, **counts), score(2, 1.0, **numbers | {"client_mean": 3.0}, **fewer)])
    (model,) = history.over_clients(2)["test"].values()
    assert model == {**numbers, "client_mean": 2.0, **fewer}
