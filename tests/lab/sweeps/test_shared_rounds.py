"""Which rounds the runs of a sweep share, and that they may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsash import runs
from fedsash.lab.sweeps import execute, parse, plan
from fedsash.lab.sweeps.machines import Here
from fedsash.lab.sweeps.scheduling import SegmentScheduler, trained
from fedsash.runs.progress import Progress
from support.sweeps import BASE, IMA, contents, to_train


def test_observing_averages_costs_no_round() -> None:
    assert to_train({"averages.ima.size": [1, 2, 3, 4]}) == 6
    assert to_train({"averages": [{}, {"a": {"name": "swa", "start": 2}}, {"a": {"name": "ema", "decay": 0.9}}]}) == 6


def test_a_broadcast_shares_the_rounds_before_clients_receive_the_average() -> None:
    """The first average is received in round start + 1 (0-based), where IMA's steps are smaller for the first time."""
    assert to_train({"ima": {"off": {}, "t3": IMA["t3"]}}) == 4 + 2 * 2
    assert to_train({"ima": {"off": {}, "t2": IMA["t2"]}}) == 3 + 2 * 3
    assert to_train({"ima": IMA}) == 3 + 3 + (1 + 2 * 2)


def test_a_broadcast_before_the_server_optimiser_shares_with_its_like_only() -> None:
    broadcasts = {
        f"{order}{t}": {"broadcast": {"average": "ima", "start": t, "order": order}}
        for order in ("before", "code")
        for t in (3, 5)
    }
    assert to_train({"ima": {"before3": broadcasts["before3"], "before5": broadcasts["before5"]}}) == 2 + 2 * 4
    assert to_train({"ima": broadcasts}) == 2 * (2 + 2 * 4)
    assert to_train({"ima": {"off": {}, "before5": broadcasts["before5"]}}) == 12


def test_an_adaptive_broadcast_shares_nothing_with_a_given_one() -> None:
    auto = {"broadcast": {"average": "ima", "start": "auto"}, "evaluation": {"held_out": 0.2}}
    given_one = {"broadcast": {"average": "ima", "start": 6}, "evaluation": {"held_out": 0.2}}
    assert to_train({"ima": {"auto": auto, "t5": given_one}}) == 12


@pytest.mark.parametrize(
    "axis", ["seed", "local.batch", "sampling.count", "evaluation.every", "rounds", "partition.alpha"]
)
def test_what_changes_the_training_from_the_start_is_not_shared(axis: str) -> None:
    assert to_train({axis: [1, 2]}) == (3 if axis == "rounds" else 12)


def test_schedules_share_the_rounds_in_which_they_give_the_same_numbers() -> None:
    steps = [{"name": "step", "every": every, "factor": 0.5} for every in (3, 4)]
    assert to_train({"local.schedule": steps}) == 3 + 2 * 3


@pytest.mark.parametrize("lr", [{}, {"lr": 0.1}], ids=["the round's rate", "one of its own"])
def test_fine_tuning_has_the_rate_of_the_round_before_it_and_so_is_shared_with_that(lr: dict[str, float]) -> None:
    steps = [{"name": "step", "every": every, "factor": 0.5} for every in (3, 4)]
    tuned = {"held_out": 0.2, "fine_tuning": lr}
    assert to_train({"local.schedule": steps}, base=BASE | {"evaluation": tuned}) == 3 + 2 * 3


@pytest.mark.slow
def test_tuned_rows_of_a_sweep_over_rates_are_those_of_separate_runs(tmp_path: Path) -> None:
    tuned = {"every": 1, "last": 1, "held_out": 0.2, "fine_tuning": {}}
    steps = [{"name": "step", "every": every, "factor": 0.5} for every in (3, 4)]
    swept = parse({"base": BASE | {"evaluation": tuned}, "axes": {"local.schedule": steps}}, Path(), ())
    assert not execute(swept, tmp_path / "sweep", progress=False).failed
    for planned in swept.runs:
        runs.run(planned.experiment.federation(), 6, out=tmp_path / planned.name, progress=False)
        assert contents(tmp_path / "sweep" / "runs" / planned.name) == contents(tmp_path / planned.name)


@pytest.mark.parametrize(
    "axes",
    [
        pytest.param({"averages.ema.decay": [0.5, 0.9]}, marks=pytest.mark.slow),
        {"local.schedule": [{"name": "step", "every": every, "factor": 0.5} for every in (5, 7)]},
    ],
)
def test_runs_that_have_one_broadcast_share_its_rounds_too(axes: dict[str, Any], tmp_path: Path) -> None:
    """They differ in what only observes, or after the broadcast has begun."""
    base = BASE | IMA["t3"] | {"averages": BASE["averages"] | {"ema": {"name": "ema", "decay": 0.5}}}
    swept = parse({"base": base, "axes": axes}, Path(), ())
    assert not execute(swept, tmp_path / "sweep", progress=False).failed
    for planned in swept.runs:
        runs.run(planned.experiment.federation(), 6, out=tmp_path / planned.name, progress=False)
        assert contents(tmp_path / "sweep" / "runs" / planned.name) == contents(tmp_path / planned.name)


def test_another_engine_shares_the_same_rounds_and_another_precision_does_not() -> None:
    """A sweep that goes on with more workers does not train again what its runs share."""

    def shared(**engine: Any) -> set[str]:
        base = BASE | {"engine": BASE["engine"] | engine}
        segments = plan(parse({"base": base, "axes": {"ima": IMA}}, Path()).runs).segments
        return {segment.folder for segment in segments if segment.shared}

    usual = shared()
    assert usual and shared(workers=2) == usual
    assert not shared(precision="bfloat16") & usual


def test_the_bar_of_a_sweep_that_goes_on_begins_where_its_runs_are(tmp_path: Path) -> None:
    axes = {"seed": [0, 1]}
    execute(parse({"base": BASE | {"rounds": 2}, "axes": axes}, Path()), tmp_path, jobs=1, progress=False)
    planned = plan(parse({"base": BASE | {"rounds": 6}, "axes": axes}, Path()).runs)
    bar = Progress(planned.to_train, False)
    foreman = SegmentScheduler(tmp_path, planned, Here(planned.segments, tmp_path, 1), bar)
    assert sum(foreman.reached.values()) - foreman.before == 4 == trained(planned.segments, tmp_path, foreman.done)
