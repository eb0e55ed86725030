"""What a run's rows come to: the summary by hand and by NumPy, for metrics of both directions and on both splits."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.evaluation import Evaluation
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content, goal_of, metric_of, summarise
from fedsash.settings.errors import RunError
from fedsash.tasks import Criterion
from support.histories import ACCURACY, NO_TEST, RMSE, history, history_of
from support.json_files import write_json

no_deadline = settings(deadline=None, max_examples=30)
shares = st.floats(0, 1)
ON_HELD_OUT = Evaluation(last=2)
ON_TEST = Evaluation(last=2, best_on="test")


def row(round: int, accuracy: float | None, model: str = "model", split: str = "test") -> dict[str, Any]:
    return {"round": round, "model": model, "split": split, "accuracy": accuracy, "loss": 1.0}


def skipped(round: int, why: str = "overflow") -> dict[str, Any]:
    return {"round": round, "model": "model", "split": "guard", "refused": [], "skipped": why}


def models(rows: list[dict[str, Any]], last: int = 10, criterion: Criterion = ACCURACY) -> dict[str, Any]:
    found: dict[str, Any] = summarise(history_of(rows), Evaluation(last=last), criterion)["models"]
    return found


def test_the_summary_by_hand() -> None:
    rows = [row(10, 0.2), row(10, 0.3, "w"), skipped(11), row(20, 0.6), row(20, 0.8, "w")]
    rows += [row(30, 0.4), row(30, 0.8, "w"), row(30, 0.99, "w", split="clients")]
    summary = summarise(history_of(rows), Evaluation(last=2), ACCURACY)
    assert summary["metric"] == {
        "name": "accuracy", "better": "higher", "share": True, "target": 0.8, "split": "test"
    }  # fmt: skip
    assert list(summary["models"]) == ["model", "w"] and summary["chosen"] is None
    model, window = summary["models"]["model"], summary["models"]["w"]
    assert model["value"] == 0.4 and window["value"] == 0.8
    assert model["last_mean"] == pytest.approx(0.5) and window["last_mean"] == pytest.approx(0.8)
    assert model["last_std"] == pytest.approx(0.1) and window["last_std"] == 0  # population: half the distance
    assert model["best"] == {"round": 20, "value": 0.6, "chosen_on": "test"}
    assert window["best"] == {"round": 20, "value": 0.8, "chosen_on": "test"}
    assert model["rounds_to_target"] is None and window["rounds_to_target"] == 20
    assert model["gain"] == 0 and window["gain"] == pytest.approx(0.3)


def test_an_average_that_begins_among_the_last_evaluations_has_no_mean_and_no_gain() -> None:
    """Its mean would be of other rounds than the model's: here 0.8 against 0.5, where it is worse in each of them."""
    own, late = [0.2, 0.4, 0.9], [0.8]
    rows = [row(t, value) for t, value in enumerate(own)] + [row(2, value, "late") for value in late]
    found = models(rows, last=3)
    assert found["late"]["value"] == 0.8 and found["model"]["last_mean"] == pytest.approx(0.5)
    assert (found["late"]["last_mean"], found["late"]["last_std"], found["late"]["gain"]) == (None, None, None)
    assert models(rows, last=1)["late"]["gain"] == pytest.approx(-0.1)
    held = [each | {"split": "held_out"} for each in rows]
    assert summarise(history_of([*rows, *held]), Evaluation(last=3), ACCURACY)["chosen"] == "model"


def test_what_should_be_low_is_best_where_it_is_lowest_and_gains_by_falling() -> None:
    rows = history({"model": [4.0, 2.0, 3.0], "w": [5.0, 1.5, 1.0]}, metric="rmse")
    found = models(rows, last=2, criterion=replace(RMSE, target=2.0))
    model, window = found["model"], found["w"]
    assert model["best"] == {"round": 20, "value": 2.0, "chosen_on": "test"}
    assert window["best"] == {"round": 30, "value": 1.0, "chosen_on": "test"}
    assert (model["rounds_to_target"], window["rounds_to_target"]) == (20, 20)
    assert window["gain"] == pytest.approx(2.5 - 1.25) and model["gain"] == 0


def test_without_a_target_no_round_reaches_it() -> None:
    assert models(history({"model": [0.0]}, metric="rmse"), criterion=RMSE)["model"]["rounds_to_target"] is None


@no_deadline
@given(
    values=st.lists(shares, min_size=1, max_size=30),
    last=st.integers(1, 40),
    target=st.floats(0.01, 1),
    lower=st.booleans(),
)
def test_the_summary_is_what_numpy_says(values: list[float], last: int, target: float, lower: bool) -> None:
    rows = [row(5 * i, value) for i, value in enumerate(values)]
    criterion = Criterion(better="lower" if lower else "higher", target=target)
    summary = models(rows, last, criterion)["model"]
    assert summary["last_mean"] == pytest.approx(np.mean(values[-last:]), abs=1e-12)
    assert summary["last_std"] == pytest.approx(np.std(values[-last:]), abs=1e-7)
    best = int(np.argmin(values) if lower else np.argmax(values))
    assert summary["best"] == {"round": 5 * best, "value": values[best], "chosen_on": "test"}
    reached = np.flatnonzero(np.array(values) <= target if lower else np.array(values) >= target)
    assert summary["rounds_to_target"] == (5 * reached[0] if len(reached) else None)


@no_deadline
@given(
    values=st.lists(st.one_of(shares, st.sampled_from([math.nan, math.inf, -math.inf])), max_size=12),
    order=st.randoms(),
    split=st.sampled_from(["test", "held_out"]),
    better=st.sampled_from(["higher", "lower"]),
)
def test_the_file_and_the_memory_give_the_same_summary_in_any_order(
    values: list[float], order: Any, split: str, better: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [row(i, value, model, split) for i, value in enumerate(values) for model in ("model", "w")]
    records, criterion = Records(tmp_path_factory.mktemp("run")), Criterion(better=better)
    records.append(history_of(rows))
    expected = summarise(history_of(rows), Evaluation(last=3), criterion)
    assert summarise(history_of(records.load().rows()), Evaluation(last=3), criterion) == expected
    order.shuffle(rows)
    shuffled = summarise(history_of(rows), Evaluation(last=3), criterion)
    assert shuffled["models"] == expected["models"], "the two are equal, so that the order says which one is chosen"
    assert (shuffled["chosen"] is None) == (expected["chosen"] is None)


def test_nan_leaves_undefined_only_what_it_touches() -> None:
    rows = [row(1, 0.9), row(2, math.nan), row(3, 0.5), row(1, 0.5, "w"), row(2, 0.5, "w"), row(3, None, "w")]
    found = models(rows, last=2)
    model, window = found["model"], found["w"]
    assert (model["value"], model["last_mean"], model["last_std"]) == (0.5, None, None)
    assert (model["best"], model["rounds_to_target"]) == ({"round": 1, "value": 0.9, "chosen_on": "test"}, 1)
    assert (window["value"], window["gain"], model["gain"]) == (None, None, None)
    only = models([row(1, math.nan)])["model"]
    assert only["best"] is None and only["rounds_to_target"] is None


def test_with_neither_a_test_set_nor_held_out_data_there_is_nothing_to_sum_up() -> None:
    for rows in ([], NO_TEST):
        summary = summarise(history_of(rows), Evaluation(), ACCURACY)
        assert (summary["models"], summary["chosen"]) == ({}, None)
    assert models([row(1, 0.5, "w")])["w"]["gain"] is None, "there is no model to compare with"


def test_an_average_that_is_observed_no_more_is_left_out() -> None:
    rows = [row(1, 0.5, "model"), row(1, 0.75, "w"), row(2, 0.25, "model")]
    held = [each | {"split": "held_out"} for each in rows]
    summary = summarise(history_of([*rows, *held]), Evaluation(), ACCURACY)
    assert list(summary["models"]) == ["model"] and summary["chosen"] == "model"


def test_without_a_test_set_models_are_compared_on_held_out_data() -> None:
    rows = history({"model": [2.0, 3.0], "w": [1.0, 2.0]}, metric="rmse", split="held_out")
    summary = summarise(history_of(rows), Evaluation(last=1), RMSE)
    assert summary["metric"]["split"] == "held_out" and summary["chosen"] == "w"
    assert summary["models"]["w"]["best"] == {"round": 10, "value": 1.0, "chosen_on": "held_out"}
    assert (summary["models"]["w"]["value"], summary["models"]["w"]["gain"]) == (2.0, 1.0)


def test_the_best_round_is_chosen_on_held_out_data_and_has_the_value_of_the_test_set() -> None:
    rows = history({"model": [0.5, 0.9, 0.6]}) + history({"model": [0.4, 0.5, 0.7]}, split="held_out")
    found = summarise(history_of(rows), ON_HELD_OUT, ACCURACY)["models"]["model"]
    assert found["best"] == {"round": 30, "value": 0.6, "chosen_on": "held_out"}
    found = summarise(history_of(rows), ON_TEST, ACCURACY)["models"]["model"]
    assert found["best"] == {"round": 20, "value": 0.9, "chosen_on": "test"}


def test_a_round_that_only_one_split_has_is_not_chosen() -> None:
    """An executor's clients may be missing in a round, so that it has no value on held-out data."""
    rows = history({"model": [0.5, 0.6]}) + history({"model": [0.4, 0.2, 0.9]}, split="held_out")
    found = summarise(history_of(rows), ON_HELD_OUT, ACCURACY)["models"]["model"]
    assert found["best"] == {"round": 10, "value": 0.5, "chosen_on": "held_out"}


def test_the_chosen_model_is_the_best_in_the_mean_of_the_last_evaluations_on_held_out_data() -> None:
    values: dict[str, list[float | None]] = {"model": [0.9, 0.2, 0.6], "w": [0.1, 0.5, 0.5]}
    rows = [*history(values, split="held_out"), row(30, 0.45, "new", "held_out")]
    assert summarise(history_of(rows), Evaluation(last=2), ACCURACY)["chosen"] == "w"
    assert summarise(history_of(rows), Evaluation(last=3), ACCURACY)["chosen"] == "model"
    lowest = history(values, metric="rmse", split="held_out")
    assert summarise(history_of(lowest), Evaluation(last=3), RMSE)["chosen"] == "w"


def test_a_row_without_the_metric_is_undefined() -> None:
    """A fork may have another metric than the run that it comes from."""
    rows = [row(1, 0.5), row(2, 0.6) | {"f1": 0.25}]
    found = models(rows, criterion=Criterion("f1"))["model"]
    assert (found["value"], found["last_mean"], found["best"]["round"]) == (0.25, None, 2)


def test_a_run_is_stuck_if_it_ends_in_rounds_without_a_usable_update() -> None:
    refused = skipped(10) | {"refused": [3, 8], "skipped": ""}
    rows = [skipped(3), row(5, 0.5), skipped(7, "first"), skipped(8), skipped(9), row(9, 0.1)]
    assert history_of(rows).stuck(9) == {"round": 7, "why": "first"}
    assert history_of(rows).stuck(10) is None
    assert history_of([*rows, refused]).stuck(10) is None
    assert history_of([]).stuck(5) is None
    assert history_of([skipped(1), skipped(2)]).stuck(2) == {"round": 1, "why": "overflow"}


# The file that says which metric decides


@pytest.mark.parametrize("criterion", [ACCURACY, RMSE, replace(RMSE, target=2.5)])
def test_the_file_gives_the_criterion_back_and_so_does_the_summary(criterion: Criterion, tmp_path: Path) -> None:
    evaluation = Evaluation(last=3, best_on="test")
    write_json(tmp_path / GOAL, goal_content(criterion, evaluation))
    assert goal_of(tmp_path) == (criterion, evaluation)
    assert metric_of(summarise(history_of([]), Evaluation(), criterion)) == criterion


WHOLE = goal_content(RMSE, Evaluation())
DAMAGED = {
    "no JSON": "{",
    "no table": "[]",
    "nothing": "{}",
    "only a name": json.dumps({"name": "rmse"}),
    "more": json.dumps(WHOLE | {"worst": 1}),
    "another direction": json.dumps(WHOLE | {"better": "left"}),
    "a number as name": json.dumps(WHOLE | {"name": 3}),
    "a text as target": json.dumps(WHOLE | {"target": "low"}),
    "a text as share": json.dumps(WHOLE | {"share": "yes"}),
    "no evaluation": json.dumps(asdict(RMSE)),
    "no evaluations": json.dumps(WHOLE | {"last": 0}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / GOAL).write_text(DAMAGED[name])
    with pytest.raises(RunError, match=GOAL) as refused:
        goal_of(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / GOAL, WHOLE)
    (tmp_path / GOAL).write_text((tmp_path / GOAL).read_text().replace("lower", "higher"))
    with pytest.raises(RunError, match=r"goal\.json is damaged: .* write it again with fedsash resume"):
        goal_of(tmp_path)
    (tmp_path / GOAL).unlink()
    with pytest.raises(RunError, match=r"goal\.json is missing: write it again with fedsash resume"):
        goal_of(tmp_path)
