"""Runs that a metric decides of which less is better: with a test set, held-out data, both and neither."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash import Evaluation, Fork, RunError
from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.runs import Result
from fedsash.runs.summaries import GOAL, goal_of
from fedsash.tasks import Criterion
from support.by_default import full
from support.json_files import content_of
from support.observing import Evaluated, final, go_on, rows, start
from support.regression import regression

ROUNDS = 8
HELD_OUT = Evaluation(every=1, last=3, held_out=0.3, target=0.5)
NOWHERE = replace(HELD_OUT, held_out=0.0)
NAMES = {"model", "w", "ema"}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    found: Result = start(regression(), ROUNDS, tmp_path_factory.mktemp("whole") / "a")
    return found


def values(folder: Path, model: str, split: str, metric: str = "rmse") -> dict[int, float]:
    return {r["round"]: r[metric] for r in rows(folder) if (r["model"], r["split"]) == (model, split)}


def lowest(found: dict[int, float]) -> int:
    return min(found, key=found.__getitem__)


def exported(folder: Path) -> set[str]:
    return {file.stem for file in (folder / "models").iterdir()}


def folder_of(result: Result) -> Path:
    assert result.folder is not None
    return result.folder


def test_the_folder_says_which_metric_decides_and_in_which_direction(result: Result) -> None:
    assert content_of(folder_of(result) / GOAL) == {
        "name": "rmse", "better": "lower", "share": False, "target": 0.5, "last": 3, "best_on": "held_out"
    }  # fmt: skip
    assert goal_of(folder_of(result))[0] == result.federation.goal.criterion


def test_rows_and_callbacks_have_every_metric_of_the_task(tmp_path: Path) -> None:
    heard: list[Score] = []
    start(regression(), 2, tmp_path / "a", callbacks=[Evaluated(lambda round, metrics: heard.extend(metrics))])
    assert {(m.model, m.split) for m in heard} == {(name, s) for name in NAMES for s in ("test", "held_out")}
    for m, row in zip(heard, rows(tmp_path / "a"), strict=True):
        assert (m["rmse"], m["mae"], m["r2"], m["loss"]) == (row["rmse"], row["mae"], row["r2"], row["loss"])
        assert m["rmse"] == pytest.approx(math.sqrt(m.loss)) and not {"classes", "accuracy"} & set(row)


def test_the_best_models_are_those_of_the_rounds_with_the_lowest_held_out_rmse(result: Result, tmp_path: Path) -> None:
    folder = folder_of(result)
    assert exported(folder) == NAMES | {f"{name}-best" for name in NAMES}
    for name in NAMES:
        best, round = result[name].best, lowest(values(folder, name, "held_out"))
        assert best is not None and (best.round, best.chosen_on) == (round, "held_out")
        assert best.value == values(folder, name, "test")[round]
        assert result.tally.best[name].by == "held_out/rmse" and result.tally.best[name].round == round
        start(regression(), round, tmp_path / name)
        last = (tmp_path / name / "models" / f"{name}.safetensors").read_bytes()
        assert (folder / "models" / f"{name}-best.safetensors").read_bytes() == last
    assert any(lowest(values(folder, name, "held_out")) < ROUNDS for name in NAMES), "or the last would do"


def test_half_a_run_resumed_is_the_run_and_keeps_its_best_models(result: Result, tmp_path: Path) -> None:
    start(regression(), ROUNDS, tmp_path / "a", until=5)
    resumed = go_on(regression(), ROUNDS, tmp_path / "a")
    assert final(tmp_path / "a") == final(folder_of(result))
    assert resumed.summary["models"] == result.summary["models"]


def test_a_fork_keeps_its_best_models_too(result: Result, tmp_path: Path) -> None:
    start(regression(), 5, tmp_path / "a")
    start(regression(), ROUNDS, tmp_path / "b", fork=Fork(tmp_path / "a", 5))
    assert final(tmp_path / "b") == final(folder_of(result))


def test_a_fork_that_another_metric_decides_chooses_anew(tmp_path: Path) -> None:
    start(regression(), 5, tmp_path / "a")
    anew = regression(evaluation=replace(HELD_OUT, metric="r2", target=None))
    forked = start(anew, ROUNDS, tmp_path / "b", fork=Fork(tmp_path / "a", 5))
    assert goal_of(tmp_path / "b")[0] == Criterion("r2", "higher", share=False, target=None)
    later = {round: r2 for round, r2 in values(tmp_path / "b", "w", "held_out", "r2").items() if round > 5}
    best = forked.tally.best["w"]
    assert (best.by, best.round) == ("held_out/r2", max(later, key=later.__getitem__))
    assert {row["round"] for row in rows(tmp_path / "b") if "client_mean" in row} == {*range(6, ROUNDS + 1)}


def test_a_resumed_run_has_numbers_over_clients_of_one_metric(tmp_path: Path) -> None:
    clients = replace(NOWHERE, client_test=True)
    start(regression(evaluation=clients), 2, tmp_path)
    with pytest.raises(RunError, match=r" has the rmse over its clients: evaluation\.metric must stay\. To "):
        go_on(regression(evaluation=replace(clients, metric="r2", target=None)), 3, tmp_path)
    resumed = go_on(regression(evaluation=NOWHERE), 3, tmp_path)
    assert resumed.summary["over_clients"] == {}, "clients score no more"


def test_a_fork_drops_the_best_models_that_its_source_chose_in_another_way(tmp_path: Path) -> None:
    start(regression(evaluation=replace(NOWHERE, best_on="test")), 5, tmp_path / "a")
    assert "w-best" in exported(tmp_path / "a")
    start(regression(evaluation=NOWHERE), 6, tmp_path / "b", fork=Fork(tmp_path / "a", 5))
    assert exported(tmp_path / "b") == NAMES


# Which samples there are


def test_without_a_test_set_held_out_data_are_shown(tmp_path: Path) -> None:
    found = start(regression(test=False), ROUNDS, tmp_path / "a")
    assert {row["split"] for row in rows(tmp_path / "a")} == {"held_out"}
    assert found.summary["metric"]["split"] == "held_out" and found.summary["chosen"] in NAMES
    best = found["w"].best
    assert best is not None and best.value == min(values(tmp_path / "a", "w", "held_out").values())
    assert exported(tmp_path / "a") == NAMES | {f"{name}-best" for name in NAMES}
    assert (tmp_path / "a" / "curves.png").exists() and "rmse on held-out data; lower is better" in repr(found)


def test_without_held_out_data_no_best_model_is_exported_and_the_table_says_on_what_it_was_chosen(
    tmp_path: Path,
) -> None:
    found = start(regression(evaluation=NOWHERE), ROUNDS, tmp_path / "a")
    assert exported(tmp_path / "a") == set(found.models) == NAMES and found.tally.best == {}
    best = found["w"].best
    assert best is not None and (best.round, best.chosen_on) == (lowest(values(tmp_path / "a", "w", "test")), "test")
    assert "chosen on test" in repr(found) and found.summary["chosen"] is None


def test_asked_for_the_best_model_on_the_test_set_is_exported(tmp_path: Path) -> None:
    world = regression(evaluation=replace(HELD_OUT, best_on="test"))
    found = start(world, ROUNDS, tmp_path / "a")
    best = found["w"].best
    assert best is not None and (best.round, best.chosen_on) == (lowest(values(tmp_path / "a", "w", "test")), "test")
    assert found.tally.best["w"].by == "test/rmse" and found.tally.best["w"].round == best.round
    assert exported(tmp_path / "a") == NAMES | {f"{name}-best" for name in NAMES}
    assert "chosen on test" in repr(found), "though there are held-out data"


def test_with_neither_there_are_models_and_no_numbers(tmp_path: Path) -> None:
    found = start(regression(test=False, evaluation=NOWHERE), 3, tmp_path / "a")
    assert rows(tmp_path / "a") == [] and found.summary["models"] == {} and found.summary["chosen"] is None
    assert exported(tmp_path / "a") == NAMES and not (tmp_path / "a" / "curves.png").exists()
    assert "no evaluation: none is due yet, or there is no test set, and evaluation.held_out is 0" in repr(found)
    go_on(regression(test=False, evaluation=NOWHERE), 4, tmp_path / "a")
    start(regression(test=False, evaluation=NOWHERE), 5, tmp_path / "b", fork=Fork(tmp_path / "a", 4))
    assert exported(tmp_path / "b") == NAMES


# Metrics of one's own


def furthest(output: Tensor, y: Tensor) -> float:
    """The largest error, which is not defined on the first samples of a client."""
    return float("nan") if len(y) < 3 else float((output - y).abs().max())


def test_a_function_of_ones_own_decides_and_where_it_is_not_defined_it_never_wins(tmp_path: Path) -> None:
    found = start(regression(metrics={"furthest": furthest, "odd": lambda output, y: math.nan}), 3, tmp_path / "a")
    assert found.summary["metric"]["name"] == "furthest" and found.summary["metric"]["better"] == "higher"
    test = values(tmp_path / "a", "model", "test", "furthest")
    assert found["model"].value == test[3] and all(row["odd"] is None for row in rows(tmp_path / "a"))
    odd = start(
        regression(metrics={"odd": lambda output, y: math.nan}, evaluation=replace(HELD_OUT, metric="odd")),
        *(3, tmp_path / "b"),
    )
    assert odd["model"].best is None and odd.tally.best == {} and exported(tmp_path / "b") == NAMES
    assert odd["model"].value is None and odd.summary["chosen"] is None


def test_the_loss_can_decide(tmp_path: Path) -> None:
    found = start(regression(evaluation=replace(HELD_OUT, metric="loss")), 3, tmp_path / "a")
    assert goal_of(tmp_path / "a")[0] == Criterion("loss", "lower", share=False, target=0.5)
    assert found["model"].value == values(tmp_path / "a", "model", "test", "loss")[3]


# The file that says which metric decides


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("content", ["{", full("{}")])
def test_a_damaged_goal_is_one_line_and_the_next_session_writes_it_again(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(regression(), 2, tmp_path / "a")
    whole = (tmp_path / "a" / GOAL).read_bytes()
    (tmp_path / "a" / GOAL).write_text(content)
    for arguments in (["compare", tmp_path / "a"], ["report", tmp_path / "a", "--out", tmp_path / "page.html"]):
        code, error = command(capsys, *arguments)
        assert code == 2 and error.count("\n") == 1 and str(tmp_path / "a" / GOAL) in error
    assert not (tmp_path / "page.html").exists()
    go_on(regression(), 3, tmp_path / "a")
    assert (tmp_path / "a" / GOAL).read_bytes() == whole
    assert command(capsys, "compare", tmp_path / "a")[0] == 0


def test_a_lost_goal_is_missed_and_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(regression(), 2, tmp_path / "a")
    (tmp_path / "a" / GOAL).unlink()
    code, error = command(capsys, "compare", tmp_path / "a")
    assert code == 2 and error.count("\n") == 1 and GOAL in error
    go_on(regression(), 3, tmp_path / "a")
    assert command(capsys, "compare", tmp_path / "a")[0] == 0


def test_the_best_model_of_a_result_has_the_value_that_its_table_says(result: Result) -> None:
    module, test = result.model("w-best"), result.federation.training_data.test
    best = result["w"].best
    assert test is not None and best is not None
    with torch.no_grad():
        error = (module(test.x).squeeze(-1) - test.y).square().mean().sqrt()
    assert float(error) == pytest.approx(best.value, rel=1e-12)


def test_no_word_of_accuracy_is_left_in_what_such_a_run_says(result: Result) -> None:
    shown: list[Any] = [
        repr(result),
        result._repr_html_(),
        json.dumps(result.summary),
        json.dumps(result.history.rows()),
    ]
    assert not [text for text in shown if "accuracy" in text or "%" in text]
