"""Weights of checkpoints: an EMA, and the decays for which a mean stands in."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from fedsash.averages.checkpoints.weights import DECAYS, check_weights, decay_weights, ema_weights
from fedsash.settings.errors import SettingError


def test_the_weights_of_an_ema_shrink_by_d_from_the_newest_on() -> None:
    weights = ema_weights(0.5, 5)
    assert weights == [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]


@pytest.mark.parametrize("shape", DECAYS)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_mean_equals_steps_whose_rates_decay(shape: str, n: int) -> None:
    """With fixed updates g: sum_j c_j theta_j = theta_0 + sum_i w_i g_i, where theta_j = theta_0 + g_1 + ... + g_j."""
    updates = [math.sin(i) for i in range(1, n)]
    models = [2.5]
    for update in updates:
        models.append(models[-1] + update)
    weights = decay_weights(shape, n) or [1 / n] * n
    decays = {
        "linear": lambda s: 1 - s,
        "cosine": lambda s: (1 + math.cos(math.pi * s)) / 2,
        "1-sqrt": lambda s: 1 - math.sqrt(s),
    }
    decayed = 2.5 + math.fsum(decays[shape](i / n) * updates[i - 1] for i in range(1, n))
    assert math.isclose(math.fsum(c * m for c, m in zip(weights, models, strict=True)), decayed, rel_tol=1e-13)
    assert math.isclose(math.fsum(weights), 1, rel_tol=1e-15)


def test_the_linear_decay_has_equal_weights() -> None:
    assert decay_weights("linear", 4) is None
    n = 4
    left = [1 - Fraction(i, n) for i in range(n)] + [Fraction(0)]
    assert {left[i] - left[i + 1] for i in range(n)} == {Fraction(1, n)}


def test_weights_that_make_no_mean_are_refused() -> None:
    with pytest.raises(SettingError, match="must be above 0 and below 1"):
        ema_weights(1.0, 3)
    with pytest.raises(SettingError, match="must be 'linear' or 'cosine' or '1-sqrt'"):
        decay_weights("square", 3)
    with pytest.raises(SettingError, match="must be 3 numbers"):
        check_weights([1.0], 3)
    with pytest.raises(SettingError, match="must have a sum above 0"):
        check_weights([1.0, -1.0], 2)
    with pytest.raises(SettingError, match="must have a sum above 0"):
        check_weights([1.0, -2.0], 2)
    with pytest.raises(SettingError, match="must be finite"):
        check_weights([1.0, math.nan], 2)
