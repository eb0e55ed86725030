"""Rules that choose the width of a trailing window from the models alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsash.vector.arrays import Floats


@dataclass(frozen=True, eq=False)
class Trail:
    """What a rule sees of the models so far: some coordinates of each, `sketch` `[t, k]`, the oldest one first."""

    sketch: Floats

    @cached_property
    def variogram(self) -> Floats:
        """`V(k)` for k = 0 .. t/2: the mean of `|w_i - w_(i-k)|²` over the last half of the rounds, i > t/2."""
        rounds = len(self.sketch)
        longest = rounds // 2
        centred = self.sketch - self.sketch[-1]
        products = centred @ centred.T
        squares = np.diag(products)
        distances = squares[:, None] + squares[None, :] - 2 * products
        newer = np.arange(rounds - longest, rounds)
        values = np.zeros(longest + 1)
        for lag in range(1, longest + 1):
            values[lag] = distances[newer, newer - lag].mean()
        return values


Rule = Callable[[Trail], int]
"""The number of models in the window, from 1 to t."""

MSER_BATCH = 5
MSER_EVERY = 8
"""Of the sketch MSER-5 sees each eighth coordinate, so that all layers are there."""


def drift_and_noise(values: Floats, noise: float) -> tuple[Floats, Floats]:
    """The two parts of the squared distance of the mean of W models to the drift's present place, for W = 1 .. t/2.

    Models are a drift plus noise of variance `noise` that has no memory. The first part is the drift's: how far the
    mean of the last W places lies from the newest. The second one is the noise's.
    """
    longest = len(values) - 1
    drift = np.empty(longest)
    for size in range(1, longest + 1):
        lags = np.arange(size)
        to_newest = values[:size].mean()
        among_themselves = ((size - lags) * values[:size]).sum() / size**2
        drift[size - 1] = to_newest - among_themselves - noise * (1 - 1 / size)
    return drift, noise / np.arange(1, longest + 1)


def by_variogram(memory: float, weight: float) -> Rule:
    """The primary rule: noise of variance `memory` V(1) / 2, and a drift that counts `weight` as much as noise."""

    def width(trail: Trail) -> int:
        values = trail.variogram
        if len(values) < 2:
            return 1
        drift, noise = drift_and_noise(values, memory * float(values[1]) / 2)
        return 1 + int((weight * drift + noise).argmin())

    return width


def by_distances(threshold: float) -> Rule:
    """The largest W = k up to t/2 at which `log V` grows by less than `threshold` times `log k`, from k/2 to k."""

    def width(trail: Trail) -> int:
        values = trail.variogram
        chosen = 1
        for lag in range(2, len(values)):
            slope = np.log(values[lag] / values[lag // 2]) / np.log(lag / (lag // 2))
            if slope < threshold:
                chosen = lag
        return chosen

    return width


def by_mser(trail: Trail) -> int:
    """MSER-5: drop the oldest batches of five rounds so that the standard error of the mean of the rest is least."""
    rounds = len(trail.sketch)
    batches = rounds // MSER_BATCH
    if batches < 2:
        return rounds
    newest = trail.sketch[rounds - batches * MSER_BATCH :, ::MSER_EVERY]
    means = newest.reshape(batches, MSER_BATCH, -1).mean(axis=1)
    errors = []
    for dropped in range(batches // 2 + 1):
        kept = means[dropped:]
        errors.append(np.square(kept - kept.mean(axis=0)).sum() / len(kept) ** 2)
    return MSER_BATCH * (batches - int(np.argmin(errors)))


def one_percent(trail: Trail) -> int:
    """1 % of the rounds, at least one."""
    return max(1, round(len(trail.sketch) / 100))


def share(part: float) -> Rule:
    """A fixed share of the rounds, at least one."""

    def width(trail: Trail) -> int:
        return max(1, round(part * len(trail.sketch)))

    return width
