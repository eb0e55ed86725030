"""Weights of checkpoints, from the oldest to the newest. Their mean divides by their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from numbers import Real

from ...settings.errors import check, check_choice
from ..bema import BEMA

LARGEST = 10**6
"""A weight that is more times the sum of all extrapolates beyond what a model can mean."""

DECAYS = ("linear", "cosine", "1-sqrt")


def ema_weights(decay: float, n: int) -> list[float]:
    """The weights `[n]` D^(n-i), i = 1 to n. Raises `SettingError` unless 0 < D < 1.

    An EMA that begins with the first file would give it D^(n-1) in place of (1-D) D^(n-1): of 20 files with D = 0.99,
    83 % of all.
    """
    check(isinstance(decay, Real) and 0 < decay < 1, "ema", decay, "must be above 0 and below 1")
    return [decay ** (n - i) for i in range(1, n + 1)]


def decay_weights(shape: str, n: int) -> list[float] | None:
    """The weights `[n]` with which a mean stands in for a learning rate that decays; None if all are equal.

    With n = k + 1 files and w_i the decay at s = i / (k + 1): c_0 = 1 - w_1, c_j = w_j - w_(j+1), c_k = w_k. The
    decays are 1 - s, (1 + cos(pi s)) / 2 and 1 - sqrt(s). Those of `linear` are all 1 / (k + 1), so the mean is the
    plain one, bitwise. Source: WSM, arXiv 2507.17634. Raises `SettingError` for another shape.
    """
    check_choice("decay", shape, *DECAYS)
    if shape == "linear":
        return None
    left = [_decay(shape, i / n) for i in range(n)]
    left.append(0.0)
    return [left[i] - left[i + 1] for i in range(n)]


def _decay(shape: str, s: float) -> float:
    """The learning rate at the share s of the decay, as a share of its highest value: 1 at s = 0, and 0 at s = 1."""
    if shape == "cosine":
        return (1 + math.cos(math.pi * s)) / 2
    return 1 - math.sqrt(s)


def bema_weights(bema: BEMA, steps: Sequence[int]) -> list[float]:
    """The weights `[n + 1]` of the initial model and of those of `n` ascending steps t; the first may be negative.

    BEMA is linear in the models: with beta_t and alpha_t of `BEMA`, each model counts beta_t times all later
    1 - beta, the initial one these alone; then alpha of the last step is moved from the initial to the last model.

    Raises `SettingError` for settings that say which models are taken, since here these are the checkpoints.
    """
    check(bema.every == 1, "bema.every", bema.every, "must be 1: each checkpoint is taken")
    check(bema.start == 0, "bema.start", bema.start, "must be 0: the initial model is named")
    weights = [1.0]
    for step in steps:
        share = bema.share(step)
        weights = [weight * (1 - share) for weight in weights]
        weights.append(share)
    correction = bema.correction(steps[-1])
    weights[0] -= correction
    weights[-1] += correction
    return weights


def check_weights(weights: list[float], n: int) -> None:
    """Raise `SettingError` unless there are n finite weights whose sum is above 0."""
    check(len(weights) == n, "weights", weights, f"must be {n} numbers, one for each file from the oldest on")
    check(all(map(math.isfinite, weights)), "weights", weights, "must be finite")
    total = sum(map(Fraction, weights))
    check(total > 0, "weights", weights, "must have a sum above 0")
    largest = max(abs(Fraction(weight)) for weight in weights)
    check(largest < total * LARGEST, "weights", weights, f"must be less than {LARGEST:,} times their sum")


def shares(weights: Sequence[float] | None, n: int) -> list[Fraction]:
    """The exact share `[n]` of each checkpoint: its weight, divided by the sum of all; None are equal ones."""
    if weights is None:
        return [Fraction(1, n)] * n
    total = sum(map(Fraction, weights))
    return [Fraction(weight) / total for weight in weights]
