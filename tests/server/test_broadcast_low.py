"""What a metric decides that should be low: the start and the average of a broadcast, and the best model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from fedsash.client import LocalTraining
from fedsash.evaluation import Evaluation, Score
from fedsash.runs import Fork
from fedsash.runs.tally import Best, best_after
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from fedsash.settings.fingerprint import differences
from fedsash.tasks import Better, MeanAbsoluteError, Regression
from fedsash.vector.arrays import Floats
from support.broadcasting import ADAPTIVE, ALONE, AVERAGES, BOTH, EITHER, best_models, walk
from support.by_default import rotated, some
from support.observing import go_on, start
from support.tasks import PROBLEMS
from support.worlds import identical


@dataclass(frozen=True)
class Closeness(MeanAbsoluteError):
    """The same number as the mean absolute error, so that high is better."""

    better: ClassVar[Better] = "higher"

    def value(self, sums: Floats) -> Floats:
        return -super().value(sums)


def noisy(metric: str = "mae", **settings: Any) -> Federation:
    """A regression whose model jumps about, so that an average of it is now better than it, now worse."""
    defaults: dict[str, Any] = {
        "local": LocalTraining(lr=0.5, batch=2, epochs=2),
        "averages": AVERAGES,
        "evaluation": Evaluation(every=1, last=1, held_out=0.4, metric=metric),
        "metrics": {"close": Closeness()},
    }
    problem = replace(PROBLEMS["regression of one number"], task=Regression("absolute"))
    return problem.federation(**defaults | settings)


def low(metrics: list[Score], split: str = "held_out", name: str = "mae") -> dict[str, float]:
    return {m.model: m[name] for m in metrics if m.split == split}


@pytest.mark.parametrize("broadcast", rotated(["start and average", "start", "average"], turns=1))
def test_a_low_metric_chooses_what_its_negative_chooses_bitwise(broadcast: str) -> None:
    (models, _, one), (others, _, other) = (
        walk(noisy(metric, broadcast=ADAPTIVE[broadcast]), 12) for metric in ("mae", "close")
    )
    assert all(torch.equal(a, b) for a, b in zip(models, others, strict=True))
    assert one.choice == other.choice is not None
    low_best, high_best = (best_models(noisy(metric, broadcast=ADAPTIVE[broadcast]), 12) for metric in ("mae", "close"))
    assert {name: (b.round, b.value) for name, b in low_best.items()} == {
        name: (b.round, -b.value) for name, b in high_best.items()
    }


@pytest.mark.parametrize("broadcast", some([ALONE, BOTH, EITHER], BOTH), ids=["start", "start and average", "average"])
def test_the_average_with_the_lowest_value_is_sent_once_it_was_below_the_model_often_enough(
    broadcast: Broadcast,
) -> None:
    streak, sent, begins = 0, set(), None if broadcast.start == "auto" else broadcast.start
    with noisy(broadcast=broadcast) as f:
        state = f.start()
        for _ in range(12):
            state, _ = f.round(state)
            metrics = f.evaluate(state)
            state, rows = f.learn(state, metrics)
            values = low(metrics)
            best = min(broadcast.averages, key=values.__getitem__)
            streak = streak + 1 if values[best] < values["model"] else 0
            begins = state.round if begins is None and streak == broadcast.patience else begins
            assert state.choice is not None
            assert (state.choice.average, state.choice.start, state.choice.better) == (best, begins, streak)
            assert rows[0].held_out == {name: values[name] for name in ("model", best)}
            name = best if begins is not None and state.round >= begins else "model"
            assert torch.equal(f.server_round.send(state)[0], f.models(state)[name])
            sent.add(name)
    assert sent == {"model", *broadcast.averages}


@pytest.mark.parametrize("split", ["held_out", "test"])
def test_the_best_model_of_each_name_is_the_first_with_the_lowest_value_so_far(split: Any) -> None:
    history: dict[str, list[tuple[float, int, torch.Tensor]]] = {}
    kept: dict[str, Best] = {}
    evaluation = Evaluation(every=1, last=1, held_out=0.4, metric="rmse", best_on=split)
    with noisy(evaluation=evaluation) as f:
        state = f.start()
        for _ in range(8):
            state, _ = f.round(state)
            metrics = f.evaluate(state)
            kept = best_after(kept, f, state, metrics)
            for name, value in low(metrics, split, "rmse").items():
                history.setdefault(name, []).append((value, state.round, f.models(state)[name].clone()))
            for name, seen in history.items():
                value, round, w = min(seen, key=lambda one: one[:2])
                best = kept[name]
                assert (best.value, best.round, best.by) == (value, round, f"{split}/rmse")
                assert torch.equal(best.w, w)
    assert all(1 < best.round < 8 for best in kept.values())


@pytest.mark.parametrize("held_out", [0.0, 0.4])
def test_without_held_out_data_no_best_model_is_kept_unless_the_test_set_is_to_choose(held_out: float) -> None:
    for best_on, kept in (("held_out", held_out > 0), ("test", True)):
        evaluation = Evaluation(every=1, last=1, held_out=held_out, metric="mae", best_on=best_on)  # type: ignore[arg-type]
        found = best_models(noisy(evaluation=evaluation), 2)
        assert bool(found) == kept and all(best.by == f"{best_on}/mae" for best in found.values())


def test_a_best_model_by_another_metric_does_not_count() -> None:
    """A mean absolute error is always below the root of the mean squared one."""
    before = best_models(noisy("mae"), 3)
    state = walk(noisy("mae"), 3)[2]
    with noisy("rmse") as f:
        metrics = f.evaluate(state)
        again = best_after(before, f, state, metrics)
    assert {name: best.value for name, best in again.items()} == low(metrics, name="rmse")
    assert all(best.by == "held_out/rmse" and best.round == 3 for best in again.values())


# The metric belongs to what determines a run only where it decides.


@pytest.mark.parametrize("broadcast", [None, Broadcast("wima", 3)])
def test_a_metric_that_decides_nothing_of_the_training_does_not_belong_to_the_fingerprint(
    broadcast: Broadcast | None,
) -> None:
    one, other = (noisy(metric, broadcast=broadcast) for metric in ("mae", "rmse"))
    assert one.fingerprint == other.fingerprint
    assert identical(walk(one, 4, evaluations=0)[2], walk(other, 4, evaluations=0)[2])


def test_resuming_an_adaptive_run_with_another_metric_is_refused_and_a_fork_may_take_it(tmp_path: Path) -> None:
    start(noisy("mae", broadcast=ALONE), 4, tmp_path / "run")
    line = r"evaluation.metric is \{'mae': .*MeanAbsoluteError\(\)\} there and \{'rmse': .*\} here"
    with pytest.raises(ValueError, match=line):
        go_on(noisy("rmse", broadcast=ALONE), 6, tmp_path / "run")
    assert start(noisy("rmse", broadcast=ALONE), 6, tmp_path / "fork", fork=Fork(tmp_path / "run", 4)).state.round == 6
    own = noisy("close", broadcast=ALONE, metrics={"close": Closeness()}).fingerprint
    other = noisy("close", broadcast=ALONE, metrics={"close": MeanAbsoluteError()}).fingerprint
    assert [line.split()[0] for line in differences(own, other)] == ["evaluation.metric"]


@pytest.mark.full
@pytest.mark.parametrize("broadcast, half", [("start", 5), ("start and average", 3), ("average", 7)])
def test_half_a_run_resumed_chooses_by_the_same_low_metric(broadcast: str, half: int, tmp_path: Path) -> None:
    settings = {"broadcast": ADAPTIVE[broadcast]}
    whole = start(noisy(**settings), 2 * half, tmp_path / "whole")
    start(noisy(**settings), half, tmp_path / "halves")
    halves = go_on(noisy(**settings), 2 * half, tmp_path / "halves")
    assert identical(halves.state, whole.state) and halves.state.choice == whole.state.choice
