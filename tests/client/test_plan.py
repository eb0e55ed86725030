"""The plan of a round: steps, samples and rates that follow from the settings and from the numbers of samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsash.client import SGD, Adam, LocalTraining, RoundPlan, RoundPlans
from fedsash.client.messages import Request
from fedsash.client.plan import drawn_amounts, normalisers
from fedsash.methods import FedAvg, FedSWA
from fedsash.methods.schedules import Exponential
from fedsash.settings.errors import SettingError

SIZES = np.array([4, 18, 7])


def request(round: int = 0, job: str = "train") -> Request:
    ids = np.array([5, 0, 9])
    return Request(
        job=job,  # type: ignore[arg-type]
        round=round,
        ids=ids,
        sent=torch.zeros(1),
        server_state={},
    )


def test_rates_and_their_sum_and_reach_agree_without_momentum() -> None:
    plan = RoundPlan(LocalTraining(lr=0.2, batch=5), FedSWA(0.3), SIZES, np.array([1, 2, 1]))
    assert plan.steps.tolist() == [1, 8, 2] and plan.per_epoch.tolist() == [1, 4, 2]
    assert plan.samples.tolist() == [4, 36, 7]
    assert plan.rates.shape == (8, 3) and (plan.rates > 0).sum(axis=0).tolist() == plan.steps.tolist()
    np.testing.assert_array_equal(plan.reach[:, 0].numpy(), plan.rates.sum(axis=0))
    assert torch.equal(plan.columns["lr_sum"], plan.reach)


def test_momentum_reaches_as_far_as_the_normalisers_say() -> None:
    local = LocalTraining(lr=0.2, batch=5, optimiser=SGD(0.9))
    plan = RoundPlan(local, FedAvg(), SIZES, np.array([1, 2, 1]), normalises=True)
    np.testing.assert_array_equal(plan.reach[:, 0].numpy(), 0.2 * normalisers(local, FedAvg(), plan.steps))
    np.testing.assert_array_equal(plan.effort.normaliser, normalisers(local, FedAvg(), plan.steps))
    with pytest.raises(SettingError, match="must be sgd"):
        RoundPlan(LocalTraining(optimiser=Adam()), FedAvg(), SIZES, SIZES).reach  # noqa: B018


def test_a_personal_part_that_trains_by_itself_counts_apart() -> None:
    plan = RoundPlan(LocalTraining(batch=5, steps=3), FedAvg(), SIZES, np.array([3, 3, 3]), alone=2)
    assert plan.steps.tolist() == [3, 3, 3] and plan.steps_alone.tolist() == [2, 8, 4]
    assert (plan.all_steps - plan.steps).tolist() == [2, 8, 4]
    assert (plan.all_samples - plan.samples).tolist() == (2 * SIZES).tolist()
    assert plan.rates_alone.shape == (8, 3)
    assert plan.effort.steps.tolist() == [3, 3, 3] and plan.effort.samples.tolist() == plan.all_samples.tolist()


def test_a_plan_is_made_once_for_the_same_sizes_and_amounts() -> None:
    plans = RoundPlans(LocalTraining(batch=5), FedAvg(), seed=0)
    assert plans.of(request(0), SIZES) is plans.of(request(7), SIZES)
    assert plans.of(request(0), SIZES) is not plans.of(request(0), SIZES[::-1].copy())


def test_a_schedule_and_drawn_amounts_give_each_round_its_plan() -> None:
    local = LocalTraining(lr=0.4, batch=5, epochs=2, stragglers=0.5, schedule=Exponential(0.5))
    plans = RoundPlans(local, FedAvg(), seed=3)
    for round in (0, 2, 1, 2):
        plan = plans.of(request(round), SIZES)
        amounts = drawn_amounts(local, round, request().ids, 3)
        fresh = RoundPlan(local.at(round), FedAvg(), SIZES, amounts)
        assert plan.amounts.tolist() == amounts.tolist() and plan.rates.max() == 0.4 * 0.5**round
        np.testing.assert_array_equal(plan.rates, fresh.rates)


def test_another_rate_leaves_the_workload_whose_batches_are_cut() -> None:
    plans = RoundPlans(LocalTraining(lr=0.4, batch=5, schedule=Exponential(0.5)), FedAvg(), seed=3, alone=2)
    first, second = (plans.of(request(round), SIZES) for round in (0, 1))
    assert first.work is second.work and first.work_alone is second.work_alone
    assert torch.equal(2 * second.step_rates, first.step_rates)


def test_rates_that_become_numbers_keep_all_digits() -> None:
    local = LocalTraining(lr=0.1, batch=5)
    like = torch.empty(0)
    for exact, kind in ((True, torch.float64), (False, torch.float32)):
        plan = RoundPlan(local, FedAvg(), SIZES, SIZES, like=like, exact=exact)
        assert plan.step_rates.dtype == kind and plan.step_rates.shape == (*plan.rates.shape, 1)
        assert all(rows.dtype == torch.float32 for rows in plan.columns.values())


def test_only_training_is_an_effort() -> None:
    plans = RoundPlans(LocalTraining(batch=5), FedAvg(), seed=0)
    assert plans.effort(request(), SIZES).steps.tolist() == [1, 4, 2]
    assert not plans.effort(request(job="evaluate"), SIZES).samples.any()
