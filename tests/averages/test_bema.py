"""BEMA: TRL's update, the EMA as its limit, what it takes for the first model, in a tracker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import BEMA, EMA, Tracker
from fedsash.settings.errors import SettingError
from fedsash.testing import check_average
from fedsash.vector.arrays import Vectors
from support.trajectories import Alone, final, follow, same_bits, trajectory


def trl(models: Tensor, update_freq: int, update_after: int, lag: float, multiplier: float, least: float) -> Tensor:
    """What TRL's `BEMACallback` makes of a trajectory `[steps + 1, d]`, with kappa = 0.5 and eta = 0.2.

    Written from its formulas; the sum of each step is in its order.
    """
    theta_0 = models[0].clone()
    ema = models[0].clone()
    running = models[0].clone()
    for step, theta in enumerate(models[1:], start=1):
        if step < update_after:
            continue
        if step == update_after:
            theta_0 = theta.clone()
            ema = theta.clone()
        elif (step - update_after) % update_freq == 0:
            age = lag + multiplier * step
            beta = max(age**-0.5, least)
            alpha = age**-0.2
            ema = ema * (1 - beta) + beta * theta
            running = ema + alpha * (theta - theta_0)
    return running


@pytest.mark.parametrize("update_after", [0, 1, 5])
@pytest.mark.parametrize("update_freq", [1, 4])
@pytest.mark.parametrize(("lag", "multiplier", "least"), [(10.0, 1.0, 0.0), (1.0, 0.3, 0.25)])
def test_bema_is_trls_callback(
    update_freq: int, update_after: int, lag: float, multiplier: float, least: float
) -> None:
    models = trajectory(30)
    average = BEMA(rho=lag, gamma=multiplier, least=least, every=update_freq, start=update_after)
    expected = trl(models, update_freq, update_after, lag, multiplier, least)
    torch.testing.assert_close(final(average, models), expected, rtol=1e-13, atol=1e-15)


def test_without_a_correction_and_with_a_constant_share_it_is_the_ema_from_the_initial_model_bitwise() -> None:
    models = trajectory(20)
    limit = BEMA(kappa=1000.0, eta=1000.0, least=1 - 0.75)
    assert same_bits(final(limit, models), final(EMA(0.75, start="initial"), models))


def test_without_a_correction_it_is_its_own_ema() -> None:
    models = trajectory(20)
    alone = follow(BEMA(eta=1000.0), models)
    assert same_bits(alone.value(models[-1]), alone.state["ema"])
    assert same_bits(alone.state["ema"], follow(BEMA(), models).state["ema"])


def test_with_powers_of_0_it_is_the_model_and_the_whole_way_from_the_first_one() -> None:
    models = trajectory(20)
    expected = models[-1] + (models[-1] - models[0])
    torch.testing.assert_close(final(BEMA(kappa=0.0, eta=0.0), models), expected, rtol=1e-14, atol=1e-16)


def test_it_leaves_the_range_of_the_models() -> None:
    models = torch.arange(10, dtype=torch.float64).expand(1, 10).T
    assert final(BEMA(kappa=0.0), models) > 9


def test_with_a_start_its_first_value_is_the_first_model_taken_bitwise() -> None:
    models = trajectory(6)
    alone = Alone(BEMA(start=4), models[0])
    for round, w in enumerate(models[1:5], start=1):
        alone.observe(w, round)
    assert alone.count == 1
    assert same_bits(alone.value(models[6]), models[4])


def test_a_parameter_that_is_unfrozen_later_begins_with_its_value_then() -> None:
    model = nn.Linear(2, 1).double()
    model.bias.requires_grad_(False)
    tracker = Tracker(BEMA(kappa=0.0, eta=0.0), model)
    tracker.update()
    model.bias.requires_grad_(True)
    model.bias.data.fill_(3.0)
    tracker.update()
    model.bias.data.fill_(5.0)
    tracker.update()
    assert tracker.value()["bias"].item() == 5 + (5 - 3)


def test_the_statistics_of_batch_norm_are_those_of_the_model_since_an_extrapolated_variance_may_be_negative() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    tracker = Tracker(BEMA(), model)
    for _ in range(20):
        model(0.01 * torch.randn(8, 2))
        tracker.update()
    averaged = tracker.averaged_state_dict()
    for name, statistic in model[1].named_buffers():
        assert torch.equal(averaged[f"1.{name}"], statistic)


def test_a_tracker_has_it_as_a_trajectory_has_also_resumed_bitwise() -> None:
    model = nn.Linear(3, 2)
    models = trajectory(8, d=8, dtype=torch.float32)
    nn.utils.vector_to_parameters(models[0], model.parameters())
    tracker = Tracker(BEMA(every=2), model)
    for round, w in enumerate(models[1:], start=1):
        nn.utils.vector_to_parameters(w, model.parameters())
        tracker.update()
        if round == 5:
            saved = {name: value.clone() for name, value in tracker.state_dict().items()}
            tracker = Tracker(BEMA(every=2), model)
            tracker.load_state_dict(saved)
    value = torch.cat([value.reshape(-1) for value in tracker.value().values()])
    assert same_bits(value, final(BEMA(every=2, precision="single"), models))


@pytest.mark.parametrize("average", [BEMA(every=3, start=2), BEMA(eta=1000.0)], ids=str)
@pytest.mark.full
def test_it_keeps_the_identities_of_every_average(average: BEMA) -> None:
    check_average(average)


@dataclass(frozen=True)
class Undeclared(BEMA):
    """BEMA, as if it were a mean."""

    extrapolates: ClassVar[bool] = False


@dataclass(frozen=True)
class Shrunk(BEMA):
    """BEMA, with weights that sum to 0.9."""

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return 0.9 * super().mean(state, w, past)


def test_an_average_that_extrapolates_must_declare_it() -> None:
    with pytest.raises(AssertionError, match="it must be a mean: after round 1 a coordinate is outside the range"):
        check_average(Undeclared(kappa=0.0))


def test_the_weights_of_an_average_that_extrapolates_must_sum_to_1() -> None:
    with pytest.raises(AssertionError, match="its weights must sum to 1: after round 1, models that are moved by 1"):
        check_average(Shrunk())


@pytest.mark.parametrize("settings", [{"rho": 0.5}, {"kappa": -0.1}, {"eta": math.nan}, {"least": 1.0}, {"start": -1}])
def test_what_it_refuses(settings: dict[str, float]) -> None:
    (name,) = settings
    with pytest.raises(SettingError, match=rf"^BEMA\.{name} = "):
        BEMA(**settings)  # type: ignore[arg-type]


def test_a_value_without_a_correction_is_a_copy() -> None:
    w = torch.ones(3)
    average = BEMA(eta=1000.0, precision="single")
    state = average.init(w)
    average.mean(state, w, {}).zero_()
    assert torch.equal(state["ema"], torch.ones(3))
