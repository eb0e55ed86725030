"""The accountant of differential privacy: what the rounds so far have spent, by the library dp-accounting."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..settings.errors import SettingError, check, check_positive, library
from .sampling import Poisson, Sampling, Uniform

ONE_MORE = "one client more or fewer"
REPLACED = "another client in its place"
LEAST_NOISE = 1e-6
MOST_NOISE = 1_000_000
"""The noise multipliers that the accountant knows."""


@dataclass(frozen=True)
class Privacy:
    """All models of a run so far are (`epsilon`, `delta`)-differentially private for every client (Dwork et al. 2006).

    For the runs on any two neighbouring sets of clients, and any set S of outcomes, P(S) <= exp(epsilon) P'(S) + delta.
    `neighbours` says in what neighbouring sets differ. `epsilon` is infinite without noise.
    """

    epsilon: float
    delta: float
    neighbours: str


Known: TypeAlias = Poisson | Uniform
ACCOUNTED = (Poisson, Uniform)
"""The samplings that the accountant knows; those that extend them may draw in another way."""


def known(sampling: Sampling) -> Known:
    """The sampling; raises `SettingError` if the accountant does not know it."""
    if type(sampling) not in ACCOUNTED:
        raise unknown(sampling)
    return sampling  # type: ignore[return-value]


def unknown(sampling: Sampling) -> SettingError:
    """The error of a sampling that the accountant does not know."""
    requirement = "must be Poisson or Uniform: the accountant of Private knows no other sampling"
    return SettingError.at("sampling", type(sampling).__name__, requirement)


def spent(noise: float, sampling: Known, clients: int, rounds: int, delta: float) -> Privacy:
    """The privacy after `rounds` rounds whose sums have Gaussian noise of standard deviation `noise` * clip.

    It is the bound by Renyi's divergence for this sampling:

    - `Poisson`: one of two neighbouring sets has one client more, so sums differ by up to clip (Mironov et al. 2019);
    - `Uniform`: one of N clients is replaced, so sums differ by up to 2 clip (Wang et al. 2019).

    Dropouts do not lower epsilon. Raises `LibraryError` if dp-accounting is not installed.
    """
    neighbours = ONE_MORE if isinstance(sampling, Poisson) else REPLACED
    if rounds == 0:
        return Privacy(0.0, delta, neighbours)
    if noise == 0:
        return Privacy(math.inf, delta, neighbours)
    dp = accounting()
    if isinstance(sampling, Poisson):
        relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
        event = dp.PoissonSampledDpEvent(sampling.rate, dp.GaussianDpEvent(noise))
    else:
        relation = dp.NeighboringRelation.REPLACE_ONE
        event = dp.SampledWithoutReplacementDpEvent(clients, sampling.asked(clients), dp.GaussianDpEvent(noise / 2))
    accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event, rounds)
    return Privacy(float(accountant.get_epsilon(delta)), delta, neighbours)


def least_noise(epsilon: float, sampling: Known, clients: int, rounds: int, delta: float) -> float:
    """The least noise multiplier with which `rounds` rounds spend at most `epsilon`, rounded up to four digits.

    `spent` falls as the noise grows, so it is found by bisection. Raises `SettingError` if no noise that the accountant
    knows is enough, or needed, and `LibraryError` as `spent` does.
    """
    check_positive("epsilon", epsilon)

    def enough(noise: float) -> bool:
        return spent(noise, sampling, clients, rounds, delta).epsilon <= epsilon

    high = 1.0
    while not enough(high):
        requirement = f"no noise up to {MOST_NOISE:,} is enough for {rounds:,} rounds at delta = {delta:.2g}"
        check(high < MOST_NOISE, "epsilon", epsilon, requirement)
        high = min(2 * high, float(MOST_NOISE))
    low = high / 2
    while enough(low):
        requirement = f"a noise of {LEAST_NOISE:g}, the least that the accountant knows, spends less"
        check(low > LEAST_NOISE, "epsilon", epsilon, requirement)
        high = low
        low = max(low / 2, LEAST_NOISE)
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        if enough(middle):
            high = middle
        else:
            low = middle
    digit = 10.0 ** (math.floor(math.log10(high)) - 3)
    rounded_up = math.ceil(high / digit) * digit
    return float(f"{rounded_up:.4g}")  # the product may end in 0000000001


def accounting() -> Any:
    """The library dp-accounting; raises `LibraryError` if it is not installed."""
    with library("dp-accounting", "the accountant of Private", "fedsash[privacy]"):
        import dp_accounting
        import dp_accounting.rdp
    logging.getLogger("absl").setLevel(logging.ERROR)  # it would warn of every order that it can do without
    return dp_accounting
