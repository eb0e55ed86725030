"""How much each client trains: a number, a range that is drawn from, stragglers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.client import SGD, Adam, LocalTraining, RoundPlan
from fedsash.client.plan import drawn_amounts
from fedsash.lab.config import parse
from fedsash.methods import FedAvg, FedNova, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Mild
from fedsash.settings.errors import SettingError
from fedsash.testing import close
from support.by_default import rotated, some
from support.observing import final, go_on, start
from support.worlds import ENGINES, VECTORISED, after, federation, sampled

IDS = np.arange(20_000)
UNEQUAL: dict[str, dict[str, Any]] = {
    "epochs": {"epochs": (1, 3)},
    "steps": {"steps": (1, 5)},
    "stragglers": {"epochs": 3, "stragglers": 0.5},
}


@given(low=st.integers(1, 5), more=st.integers(0, 5), round=st.integers(0, 10**6), seed=st.integers(0, 2**40))
def test_amounts_stay_in_their_range_and_do_not_depend_on_who_else_is_asked(
    low: int, more: int, round: int, seed: int
) -> None:
    for local in (LocalTraining(epochs=(low, low + more)), LocalTraining(steps=(low, low + more), stragglers=0.3)):
        ids = np.arange(30)
        amounts = drawn_amounts(local, round, ids, seed)
        least = low if not local.stragglers else 1
        assert amounts.dtype == np.int64 and least <= amounts.min() and amounts.max() <= low + more
        assert np.array_equal(drawn_amounts(local, round, ids[7::5], seed), amounts[7::5])


@given(epochs=st.integers(1, 9), round=st.integers(0, 99))
def test_a_single_number_is_everybodys(epochs: int, round: int) -> None:
    for local in (LocalTraining(epochs=epochs), LocalTraining(steps=(epochs, epochs))):
        assert local.equal and set(drawn_amounts(local, round, np.arange(5), 3).tolist()) == {epochs}


def test_a_range_is_drawn_from_uniformly_and_anew_in_every_round() -> None:
    """20,000 draws from four: each number comes 5,000 times, with a standard deviation of 61."""
    local = LocalTraining(epochs=(2, 5))
    first, second = (drawn_amounts(local, round, IDS, 0) for round in (0, 1))
    assert (abs(np.bincount(first, minlength=6)[2:] - 5000) < 400).all()
    assert abs((first == second).mean() - 0.25) < 0.02
    assert not np.array_equal(first, drawn_amounts(local, 0, IDS, 1))


def test_a_share_of_the_clients_are_stragglers_with_any_number_up_to_the_full_one() -> None:
    """Of four epochs a straggler has 1, 2, 3 or 4, as likely each, whether the others are drawn or not."""
    amounts = drawn_amounts(LocalTraining(epochs=4, stragglers=0.8), 0, IDS, 0)
    assert (abs(np.bincount(amounts)[1:4] - 4000) < 400).all()
    both = drawn_amounts(LocalTraining(epochs=(4, 5), stragglers=0.8), 0, IDS, 0)
    assert abs((both >= 4).mean() - (0.2 + 0.8 * 0.5 * (1 / 4 + 2 / 5))) < 0.02


def test_without_a_round_the_workload_is_that_of_the_mean_amount() -> None:
    sizes = np.array([10])
    for local, steps in ((LocalTraining(steps=(2, 6)), 4), (LocalTraining(steps=7, stragglers=1.0), 4)):
        assert RoundPlan.mean(local, FedAvg(), sizes).steps.tolist() == [steps]


@pytest.mark.parametrize("name, engine", rotated(UNEQUAL, ["vectorised", "workers"], turns=1))
def test_every_engine_trains_unequal_clients_as_one_at_a_time(name: str, engine: str) -> None:
    """With a method and kept moments that count steps, and an aggregation that divides by them."""
    for optimiser, settings in ((SGD(0.5), {"aggregation": FedNova(), "method": Scaffold()}), (Adam(), {})):
        keep = {"keep_moments": not settings}
        local = LocalTraining(lr=0.05, batch=5, optimiser=optimiser, **keep, **UNEQUAL[name])
        one, mine = (
            after(federation(local=local, sampling=Uniform(4), engine=ENGINES[e], **settings), 2)
            for e in ("sequential", engine)
        )
        assert close(one, mine, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNEQUAL)
def test_compiled_steps_train_unequal_clients_as_stacked_ones(name: str) -> None:
    local = LocalTraining(lr=0.1, batch=5, **UNEQUAL[name])
    stacked, compiled = (
        after(federation(local=local, engine=engine), 4) for engine in (VECTORISED, replace(VECTORISED, compile=True))
    )
    assert close(stacked, compiled, 1e-12)


@pytest.mark.parametrize("name", some(UNEQUAL, "stragglers"))
def test_clients_report_the_steps_that_were_drawn(name: str) -> None:
    f = federation(local=LocalTraining(lr=0.1, batch=5, **UNEQUAL[name]), sampling=Uniform(4))
    with f:
        state, seen = f.start(), set()
        for round in range(6):
            ids = sampled(f, round)
            request = f.ask(state)
            steps = [reply.effort.steps.item() for reply in f.executor.work(request)]  # type: ignore[union-attr]
            expected = RoundPlan(f.local, f.method, f.sizes[ids], drawn_amounts(f.local, round, ids, f.seed)).steps
            assert steps == expected.tolist()
            seen |= set((expected / RoundPlan(f.local, f.method, f.sizes[ids], np.ones_like(ids)).steps).tolist())
            state, _ = f.round(state)
    assert len(seen) > 2, "clients differ"


@pytest.mark.parametrize("name", rotated(["stragglers", "epochs", "steps"], turns=1))
def test_a_resumed_run_draws_the_same_amounts(name: str, tmp_path: Path) -> None:
    settings = {"local": LocalTraining(lr=0.1, batch=5, **UNEQUAL[name])}
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    start(federation(**settings), 2, whole)
    start(federation(**settings), 1, halves)
    go_on(federation(**settings), 2, halves)
    assert final(halves) == final(whole)


def test_an_experiment_file_writes_a_range_as_a_list() -> None:
    local = parse({"local": {"epochs": [2, 5], "stragglers": 0.5}}).local
    assert local == LocalTraining(epochs=(2, 5), stragglers=0.5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"epochs": (3, 2)}, "LocalTraining.epochs = (3, 2): must be a range [least, most]"),
        ({"epochs": (0, 2)}, "LocalTraining.epochs = 0: must be at least 1"),
        ({"steps": (1, 2, 3)}, "LocalTraining.steps = (1, 2, 3): must be an integer or a list of 2 integers"),
        ({"steps": (1, 10**9)}, "LocalTraining.steps = 1000000000: must be at most"),
        ({"steps": 3, "epochs": (1, 2)}, "LocalTraining.steps = 3: can't be combined with epochs"),
        (
            {"epochs": (1, 2), "schedule": Mild(3, "epochs")},
            "LocalTraining.epochs = (1, 2): must be one number with a schedule of epochs",
        ),
    ],
)
def test_impossible_amounts_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        LocalTraining(**options)
    assert str(refusal.value).startswith(message)


def test_stragglers_among_clients_that_train_by_one_are_refused() -> None:
    for local in (LocalTraining(stragglers=0.5), LocalTraining(steps=1, stragglers=0.5)):
        with pytest.raises(SettingError, match=r"stragglers = 0\.5: has no effect on clients that train by 1"):
            federation(local=local)
    moving = LocalTraining(schedule=Mild(3, "epochs"), stragglers=0.5)  # one's own may have more epochs later
    for local in (LocalTraining(epochs=(1, 2), stragglers=0.5), LocalTraining(steps=2, stragglers=0.5), moving):
        federation(local=local)
