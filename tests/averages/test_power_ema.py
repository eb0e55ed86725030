"""The power-function EMA: its profile, its limits, its settings."""

from __future__ import annotations

import math

import pytest
import torch

from fedsash.averages import SWA, Pieces, PowerEMA
from fedsash.averages.profiles import FLATTEST, exponent, power
from fedsash.settings.errors import SettingError
from support.trajectories import final, same_bits, trajectory


@pytest.mark.parametrize("sigma_rel", [0.05, 0.1, 0.2])
def test_its_weights_are_the_profile_of_the_paper(sigma_rel: float) -> None:
    models = trajectory(60)
    expected = torch.from_numpy(power(sigma_rel, 60)) @ models[1:]
    torch.testing.assert_close(final(PowerEMA(sigma_rel), models), expected, rtol=1e-12, atol=1e-15)


def test_gamma_and_its_sigma_rel_are_the_same_bitwise() -> None:
    models = trajectory(30)
    assert same_bits(final(PowerEMA(0.15), models), final(PowerEMA(gamma=exponent(0.15)), models))


def test_with_gamma_0_it_is_the_mean_of_all_models() -> None:
    models = trajectory(40)
    torch.testing.assert_close(final(PowerEMA(gamma=0.0), models), final(SWA(1), models), rtol=1e-13, atol=1e-16)


def test_the_flattest_sigma_rel_is_gamma_0() -> None:
    assert PowerEMA(FLATTEST).power == pytest.approx(0, abs=1e-6)


def test_a_large_gamma_is_the_last_model() -> None:
    models = trajectory(10)
    assert same_bits(final(PowerEMA(gamma=1e6), models), models[-1])


def test_sigma_rel_is_the_width_of_its_weights() -> None:
    n = 4000
    weights = torch.from_numpy(power(0.1, n))
    places = torch.arange(1, n + 1, dtype=torch.float64) / n
    mean = weights @ places
    width = math.sqrt(float(weights @ (places - mean) ** 2))
    assert width == pytest.approx(0.1, rel=1e-3)


def test_what_it_refuses() -> None:
    with pytest.raises(SettingError, match=r"^PowerEMA\.sigma_rel = 0\.3: "):
        PowerEMA(0.3)
    with pytest.raises(SettingError, match=r"^PowerEMA\.sigma_rel = 0\.2: must be left out with gamma"):
        PowerEMA(0.2, gamma=1.0)
    with pytest.raises(SettingError, match=r"^PowerEMA\.gamma = -1"):
        PowerEMA(gamma=-1.0)


def test_a_value_is_a_copy() -> None:
    average = PowerEMA(precision="single")
    state = average.init(torch.ones(3))
    average.take(state, Pieces.of(torch.ones(3)), 1, {})
    average.mean(state, torch.ones(3), {}).zero_()
    assert torch.equal(state["ema"], torch.ones(3))
