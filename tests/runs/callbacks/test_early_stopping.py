"""Early stopping, against a plain reading of the curve."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash import EarlyStopping, Evaluation, Fork, SettingError, run
from fedsash.lab.cli import main
from fedsash.runs.records import Records
from fedsash.testing import check_callback
from support.by_default import some
from support.choices import chequered
from support.observing import final, go_on, observed, start
from support.worlds import federation

HELD = Evaluation(every=1, last=1, held_out=0.3)


def world(**settings: Any) -> Any:
    return observed(evaluation=HELD, **settings)


def expected(values: list[float], patience: int, sign: int) -> int:
    """The round after which a plain loop would stop, or the last one."""
    best, since = float("-inf"), 0
    for round, value in enumerate(values, start=1):
        best, since = (sign * value, 0) if sign * value > best else (best, since + 1)
        if since == patience:
            return round
    return len(values)


@cache
def curve() -> list[dict[str, Any]]:
    """The rows of a run that nobody stops."""
    return run(world(), 12, progress=False).history.rows()


GOALS = [("accuracy", "", 1), ("loss", "", -1), ("loss", "higher", 1), ("", "lower", -1)]
"""A metric, what is better, and the sign of the metric that is higher where it is better."""


@pytest.mark.parametrize("patience, goal", chequered([1, 2, 4], GOALS, of=3))
@pytest.mark.parametrize("on", some(["held_out", "test"], "held_out"))
def test_it_stops_where_a_plain_loop_does(patience: int, goal: tuple[str, Any, int], on: Any) -> None:
    metric, better, sign = goal
    values = [row[metric or "accuracy"] for row in curve() if (row["model"], row["split"]) == ("ema", on)]
    stopping = EarlyStopping(patience=patience, model="ema", metric=metric, better=better, on=on)
    result = run(world(), 12, progress=False, callbacks=[stopping])
    assert result.state.round == expected(values, patience, sign)
    early = result.state.round < 12
    assert bool(result.summary["ended_early"]) == early and not result.interrupted


@pytest.mark.parametrize(
    "model, patience",
    [
        ("w", 1),
        *(
            pytest.param(model, patience, marks=pytest.mark.full)
            for model, patience in (("model", 1), ("model", 2), ("model", 3), ("w", 2), ("w", 3))
        ),
    ],
)
def test_it_keeps_the_identities_of_callbacks(model: str, patience: int) -> None:
    check_callback(EarlyStopping(patience=patience, model=model, metric="loss", better="higher"))


def test_the_summary_says_why_and_a_resumed_run_stops_again(tmp_path: Path) -> None:
    stopping = EarlyStopping(patience=2, metric="loss", better="higher")
    first = start(world(), 12, tmp_path, callbacks=[stopping])
    why = first.summary["ended_early"]
    assert why.startswith("model's loss on held-out data has not improved in 2 evaluations since round 2 (")
    before = final(tmp_path)
    again = go_on(world(), 20, tmp_path, callbacks=[stopping])
    assert again.state.round == first.state.round and again.summary["ended_early"] == why
    assert final(tmp_path) == before
    assert go_on(world(), 12, tmp_path, callbacks=[EarlyStopping(patience=12)]).state.round == 12


def test_values_that_are_no_numbers_never_count() -> None:
    def odd(output: Tensor, y: Tensor) -> Tensor:
        return torch.tensor(math.nan)

    broken = federation(evaluation=HELD, metrics={"odd": odd})
    result = run(broken, 9, progress=False, callbacks=[EarlyStopping(patience=3, metric="odd")])
    assert result.state.round == 3
    assert result.summary["ended_early"] == "model's odd on held-out data has not improved in 3 evaluations"


def test_a_fork_counts_from_its_start(tmp_path: Path) -> None:
    stopping = EarlyStopping(patience=3, metric="loss", better="higher")
    start(world(), 10, tmp_path / "a", until=6)
    result = start(world(), 10, tmp_path / "b", fork=Fork(tmp_path / "a", 6), callbacks=[stopping])
    own = [row["loss"] for row in result.history.rows() if (row["model"], row["split"]) == ("model", "held_out")]
    assert result.state.round == 6 + expected(own[6:], 3, 1)


@pytest.mark.parametrize("start", [1, 3, 20])
def test_evaluations_before_its_start_count_neither_as_the_best_nor_as_worse_ones(start: int) -> None:
    losses = [row["loss"] for row in curve() if (row["model"], row["split"]) == ("model", "held_out")]
    stopping = EarlyStopping(patience=2, metric="loss", better="higher", start=start)
    result = run(world(), 12, progress=False, callbacks=[stopping])
    assert result.state.round == min(12, start - 1 + expected(losses[start - 1 :], 2, 1))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"model": "wima"}, "EarlyStopping.model = 'wima': must be one of model, window"),
        ({"metric": "f1"}, "EarlyStopping.metric = 'f1': must be one of loss, accuracy"),
        ({}, "EarlyStopping.on = 'held_out': needs held-out samples: set evaluation.held_out"),
    ],
)
def test_what_it_can_not_watch_is_refused(settings: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as error:
        start(observed(), 3, tmp_path / "run", callbacks=[EarlyStopping(**settings)])
    assert str(error.value).startswith(line) and not (tmp_path / "run").exists()


def test_an_experiment_file_names_it_and_errors_name_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text("rounds = 30\npartition.clients = 10\nsampling.count = 2\n[engine]\nworkers = 1\n")
    stop = "callbacks.stop={name='early_stopping', patience=2, metric='loss', better='higher'}"
    command = ["run", str(file), "--no-progress", "--out", str(tmp_path / "run"), "--set", stop]
    assert main(command) == 2
    assert "experiment.toml: callbacks.stop.on = 'held_out': needs held-out" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    more = ["--set", "evaluation.held_out=0.3", "--set", "evaluation.every=1"]
    assert main([*command, *more]) == 0
    said = " ".join(capsys.readouterr().out.split())
    losses = [row["loss"] for row in Records(tmp_path / "run").load().rows() if row["split"] == "held_out"]
    best = losses.index(max(losses)) + 1
    line = f"ended after round {best + 2}: model's loss on held-out data has not improved in 2 evaluations since round"
    assert f"{line} {best} ({max(losses):.3f})" in said and len(losses) == best + 2
