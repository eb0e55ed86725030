"""A window is the exact mean of its models, rounded once; what is not finite is left out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsash.averages import EMA, SWA, Window
from support.by_default import full
from support.trajectories import Alone, final, same_bits, trajectory


def assert_one_rounding(value: Tensor, models: list[Tensor], slack: float = 0.0) -> None:
    """Each element is its exact mean (rational arithmetic), rounded once; `slack` is absolute."""
    for i, found in enumerate(value.tolist()):
        exact = sum(Fraction(w[i].item()) for w in models) / len(models)
        half_ulp = Fraction(float(np.spacing(np.abs(value[i].numpy())))) / 2
        assert abs(Fraction(found) - exact) <= half_ulp * (1 + Fraction(1, 2**20)) + Fraction(slack)


@pytest.mark.parametrize(
    "dtype, rounds",
    [(torch.float32, 1000), full(torch.float32, 10_000), pytest.param(torch.float64, 10_000, marks=pytest.mark.slow)],
)
def test_window_is_exact_to_one_rounding_after_many_rounds_and_huge_values(dtype: torch.dtype, rounds: int) -> None:
    size, d = 100, 12
    models, first = trajectory(rounds, d, dtype), 3 * rounds // 10
    models[first : first + 250] *= 1e8
    checked = {50, rounds - 1, rounds} | {first + after for after in (-1, 50, 249, 300, 348, 349, 350)}
    window = Alone(Window(size), models[0])
    for round, w in enumerate(models[1:], start=1):
        window.observe(w, round)
        if round in checked:
            last = models[max(1, round + 1 - size) : round + 1]
            assert_one_rounding(window.value(w), list(last))


def test_window_equals_fsum_across_chunks() -> None:
    """A model longer than one chunk of the running sum, with a last chunk that isn't full."""
    models = trajectory(12, d=3 * 2**14 + 5, dtype=torch.float32)
    value = final(Window(4), models)
    for i in [0, 2**14 - 1, 2**14, 3 * 2**14, 3 * 2**14 + 4]:
        assert value[i].item() == np.float32(math.fsum(models[-4:, i].tolist()) / 4)


VALUES = {
    torch.float32: st.floats(-(2.0**30), 2.0**30, width=32),
    torch.float64: st.floats(-(2.0**30), 2.0**30),
}


@pytest.mark.parametrize("dtype", VALUES)
@settings(max_examples=30)
@given(data=st.data())
def test_window_agrees_with_a_list(dtype: torch.dtype, data: st.DataObject) -> None:
    """Observing and retracting in any order leaves the exact mean of the models that a plain list would hold."""
    window = Window(data.draw(st.integers(1, 4)), every=data.draw(st.integers(1, 2)))
    fallback = torch.full((2,), 0.5, dtype=dtype)
    alone = Alone(window, fallback)
    kept: list[tuple[int, Tensor | None]] = []
    for round in range(1, data.draw(st.integers(0, 12)) + 1):
        w = torch.tensor(data.draw(st.lists(VALUES[dtype], min_size=2, max_size=2)), dtype=dtype)
        alone.observe(w, round)
        if round % window.every == 0:
            kept = [*kept, (round, w)][-window.size :]
        held = [r for r, model in kept if model is not None]
        if held and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(held))
            alone.retract(gone)
            kept = [(r, None if r == gone else model) for r, model in kept]
        present = [model for _, model in kept if model is not None]
        assert alone.count == len(present) == len(alone.held)
        # Beyond the one rounding: n^2 * 2^-106 of the largest sum on the way (module sums).
        assert_one_rounding(alone.value(fallback), present or [fallback], slack=2.0**-60)


def test_values_that_are_not_finite_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    models = trajectory(6)
    bad = models.clone()
    bad[4, 2] = math.nan
    bad[5, 3] = -math.inf
    for average in (Window(3), SWA(start=1), EMA(0.5)):
        alone = Alone(average, models[0])
        for round in (1, 2, 3, 6):
            alone.observe(models[round], round)
        assert same_bits(final(average, bad), alone.value(models[6]))
    assert "round 4: the model is not finite; left out of " in caplog.text
