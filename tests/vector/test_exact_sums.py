"""How far the mean of a running sum is from the exact one: half a last bit, and a little for rounding again."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf

import pytest
import torch
from torch import Tensor

from fedsash.vector import exact_sums
from fedsash.vector.pieces import Pieces

EXCESS = {torch.float64: 2.0**-48, torch.float32: 2.0**-28, torch.float16: 2.0**-13, torch.bfloat16: 2.0**-16}
"""What `exact_sums.mean` promises, in last bits beyond the half."""


def mean_of(models: Sequence[Tensor]) -> Tensor:
    high = exact_sums.zero(models[0])
    low = exact_sums.zero(models[0])
    exact_sums.add(high, low, [Pieces.of(w) for w in models])
    return exact_sums.mean(high, low, len(models), models[0])


def off(mean: Tensor, exact: Fraction) -> Fraction:
    """The distance of a number from an exact one, in steps to its neighbour on that side, less the half step."""
    found = Fraction(mean.item())
    side = torch.full_like(mean, inf if exact > found else -inf)
    step = abs(Fraction(torch.nextafter(mean, side).item()) - found)
    return abs(found - exact) / step - Fraction(1, 2)


@pytest.mark.parametrize("dtype", list(EXCESS), ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_a_mean_is_at_most_half_a_last_bit_and_the_promised_excess_from_the_exact_one(
    dtype: torch.dtype, count: int
) -> None:
    draws = torch.Generator().manual_seed(count)
    models = [torch.randn(200, generator=draws, dtype=torch.float64).to(dtype) for _ in range(count)]
    columns = zip(*(w.tolist() for w in models), strict=True)
    for mean, column in zip(mean_of(models), columns, strict=True):
        assert off(mean, sum(map(Fraction, column), Fraction()) / count) <= EXCESS[dtype]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_mean_of_16_bits_that_is_nearly_halfway_is_rounded_by_way_of_float32(dtype: torch.dtype) -> None:
    """It is a little above the middle of two numbers; float32 has the middle itself, whose even neighbour is taken."""
    last = float(torch.finfo(dtype).eps)
    tiny = 2.0**-24  # a number of both types
    models = [torch.tensor([x], dtype=dtype) for x in (1.0, 1 + last, tiny, *[0.0] * 61)]
    exact = (2 + Fraction(last) + Fraction(tiny)) / 64
    assert mean_of(models).item() == 2 / 64
    assert 0 < off(mean_of(models)[0], exact) <= EXCESS[dtype]
