"""The accountant against closed forms and published values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedsash import SettingError
from fedsash.methods import Private
from fedsash.methods.accountant import MOST_NOISE, ONE_MORE, REPLACED, least_noise, spent
from fedsash.methods.sampling import Poisson, Uniform
from support.libraries import Library
from support.private import UNIFORM, still

Library("dp_accounting")
DELTA = 1e-5


def bound(z: float, rounds: int) -> float:
    """Renyi's bound on epsilon for `rounds` Gaussian mechanisms without sampling (Canonne et al. 2020)."""
    a = np.linspace(1.01, 200, 200_000)
    each = rounds * a / (2 * z**2) + np.log1p(-1 / a) - (math.log(DELTA) + np.log(a)) / (a - 1)
    return float(each.min())


def exact(z: float) -> float:
    """The exact epsilon of one Gaussian mechanism (Balle & Wang 2018, theorem 8), by bisection."""

    def phi(t: float) -> float:
        return 0.5 * math.erfc(-t / math.sqrt(2))

    low, high = 0.0, 100.0
    for _ in range(100):
        epsilon = (low + high) / 2
        delta = phi(0.5 / z - epsilon * z) - math.exp(epsilon) * phi(-0.5 / z - epsilon * z)
        low, high = (epsilon, high) if delta > DELTA else (low, epsilon)
    return high


@pytest.mark.parametrize("z, rounds", [(1.0, 1), (4.0, 1), (4.0, 50), (10.0, 300)])
def test_without_sampling_it_is_the_closed_form(z: float, rounds: int) -> None:
    """With `Uniform` a replaced client changes the sum by 2 S: as much as half the noise would be."""
    assert spent(z, Poisson(1.0), 100, rounds, DELTA).epsilon == pytest.approx(bound(z, rounds), rel=2e-3)
    assert spent(2 * z, Uniform(100), 100, rounds, DELTA).epsilon == pytest.approx(bound(z, rounds), rel=2e-3)


@pytest.mark.parametrize("z", [0.7, 1.0, 4.0])
def test_it_is_never_below_the_exact_value(z: float) -> None:
    assert exact(z) <= spent(z, Poisson(1.0), 100, 1, DELTA).epsilon <= 1.25 * exact(z)


@pytest.mark.parametrize(
    "rate, z, rounds, published",
    [
        (0.01, 4.0, 10_000, 1.26),  # Abadi et al. 2016, section 3
        (256 / 60_000, 1.3, 20 * 60_000 // 256, 1.34),  # Bu et al. 2020, figure 4
        (256 / 60_000, 0.7, 70 * 60_000 // 256, 8.68),  # the same
    ],
)
def test_it_is_a_little_tighter_than_the_moments_accountant_of_papers(
    rate: float, z: float, rounds: int, published: float
) -> None:
    # the moments accountant lacks log(a/(a-1)) + log(a)/(a-1) of Canonne et al., less than a quarter of these values
    assert 0.75 * published < spent(z, Poisson(rate), 1000, rounds, DELTA).epsilon < published + 0.005


@pytest.mark.parametrize(
    "fewer, more", [(Poisson(0.1), Poisson(0.2)), pytest.param(Uniform(10), Uniform(20), marks=pytest.mark.full)]
)
def test_epsilon_grows_with_rounds_and_clients_and_falls_with_noise(fewer: Any, more: Any) -> None:
    base = spent(2.0, fewer, 100, 50, DELTA).epsilon
    assert 0 < base < spent(2.0, fewer, 100, 51, DELTA).epsilon
    assert base < spent(2.0, more, 100, 50, DELTA).epsilon
    assert base < spent(1.9, fewer, 100, 50, DELTA).epsilon


@pytest.mark.parametrize(
    "epsilon, sampling",
    [
        (3.0, Poisson(1.0)),
        *(pytest.param(epsilon, Poisson(0.25), marks=pytest.mark.full) for epsilon in (0.3, 3.0, 40.0)),
        *(pytest.param(epsilon, Uniform(50), marks=pytest.mark.full) for epsilon in (0.3, 40.0)),
    ],
)
def test_the_least_noise_keeps_to_an_epsilon_and_two_thousandths_less_do_not(epsilon: float, sampling: Any) -> None:
    noise = least_noise(epsilon, sampling, 200, 100, DELTA)
    assert spent(noise, sampling, 200, 100, DELTA).epsilon <= epsilon
    assert spent(0.998 * noise, sampling, 200, 100, DELTA).epsilon > epsilon
    assert noise == float(f"{noise:.4g}")


@pytest.mark.parametrize("epsilon", [1e-12, 0.0, math.nan])
def test_an_epsilon_that_no_noise_reaches_is_refused(epsilon: float) -> None:
    with pytest.raises(SettingError, match=r"^epsilon = "):
        least_noise(epsilon, Poisson(1.0), 200, 10**9, DELTA)


def test_the_most_noise_is_tried_before_it_is_said_not_to_be_enough() -> None:
    epsilon = spent(0.9 * MOST_NOISE, Poisson(1.0), 200, 10**9, DELTA).epsilon
    assert 0.89 * MOST_NOISE < least_noise(epsilon, Poisson(1.0), 200, 10**9, DELTA) < 0.91 * MOST_NOISE


def test_no_round_spends_nothing_and_a_round_without_noise_everything() -> None:
    for sampling, neighbours in ((Poisson(0.1), ONE_MORE), (Uniform(10), REPLACED)):
        first, later = (spent(0.0, sampling, 100, rounds, DELTA) for rounds in (0, 1))
        assert (first.epsilon, later.epsilon, later.neighbours) == (0.0, math.inf, neighbours)
        assert spent(1.0, sampling, 100, 0, DELTA).epsilon == 0.0


def test_every_round_of_a_federation_counts_also_one_without_clients() -> None:
    rule, sampling = Private(1.0, 3.0), Poisson(0.2)
    with still(3, aggregation=rule, sampling=sampling) as world:
        state, empty = world.start(), 0
        for _ in range(8):
            state, report = world.round(state)
            empty += len(report.clients) == 0
        assert empty and world.privacy(state) == spent(3.0, sampling, 4, 8, 4**-1.1)


def test_a_rule_that_protects_nobody_says_nothing() -> None:
    with still(3, method=UNIFORM) as world:
        assert world.privacy(world.start()) is None
