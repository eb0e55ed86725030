"""The mean of tensors of several floating types, against fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from fedsash.settings.errors import SettingError
from fedsash.vector.exact_means import rounded_once
from fedsash.vector.mixed_means import MIXED, mixed_mean

NARROW = MIXED[1:]


def check_nearest(mean: Tensor, values: Sequence[Tensor], weights: Sequence[float]) -> None:
    """No number of the type is nearer to the exact mean, and of two as near it is the even one."""
    total = sum(map(Fraction, weights))
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[mean.element_size()]
    bits = mean.view(size)
    below = torch.nextafter(mean, torch.full_like(mean, -math.inf))
    above = torch.nextafter(mean, torch.full_like(mean, math.inf))
    for i in range(len(mean)):
        exact = sum((Fraction(w) * Fraction(float(x[i])) for w, x in zip(weights, values, strict=True)), Fraction())
        distance = abs(number(mean[i]) - exact / total)
        for neighbour in (below[i], above[i]):
            other = abs(number(neighbour) - exact / total)
            assert distance < other or (distance == other and bits[i] & 1 == 0)


def number(x: Tensor) -> Fraction:
    """A number; infinity is the power of two after the largest one."""
    if x.isinf():
        exponent = math.frexp(torch.finfo(x.dtype).max)[1]
        return Fraction(2) ** exponent * (1 if x > 0 else -1)
    return Fraction(float(x))


def random_bits(dtype: torch.dtype, count: int, seed: int) -> Tensor:
    """Finite numbers with random bits, subnormal ones among them."""
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    draws = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(1 << 62), 1 << 62, (2 * count,), generator=draws)
    x = (bits >> (62 - 8 * dtype.itemsize + 2)).to(size).view(dtype)
    return x[x.isfinite()][:count]


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.3, 0.1, 1.7], [1.0, -0.25, 0.5]])
@pytest.mark.parametrize("dtype", MIXED)
def test_random_bits_of_all_types_have_the_nearest_mean(dtype: torch.dtype, weights: list[float]) -> None:
    values = [random_bits(kind, 40, seed) for seed, kind in enumerate(NARROW)]
    check_nearest(mixed_mean(values, weights, dtype), values, weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_lies_just_beside_a_middle_does_not_go_to_the_even_number(dtype: torch.dtype) -> None:
    """A number's middle to the next one, and float64 numbers 2^-52, and less, above and below it."""
    one = torch.ones(8, dtype=dtype)
    half = torch.finfo(dtype).eps / 2
    sizes = [0.0, 2.0**-52, -(2.0**-52), 2.0**-60, -(2.0**-60), 2.0**-1070, -(2.0**-1070), 2.0**-30]
    beside = torch.tensor(sizes, dtype=torch.float64)
    middle = torch.full((8,), half, dtype=torch.float32)
    values = [one, middle, beside]
    mean = mixed_mean([3 * one, 3 * middle, 3 * beside], None, dtype)
    check_nearest(mean, [3 * x.double() for x in values], [1.0] * 3)
    up = 1 + torch.finfo(dtype).eps
    assert mean.double().tolist() == [1.0, up, 1.0, up, 1.0, up, 1.0, up]


@pytest.mark.parametrize("dtype", NARROW)
def test_the_largest_numbers_become_infinite_where_the_exact_mean_rounds_there(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    step = largest - float(torch.nextafter(torch.tensor(largest, dtype=dtype), torch.tensor(0.0, dtype=dtype)))
    x = torch.full((4,), largest, dtype=dtype)
    more = torch.tensor([0.0, 0.99 * step, step, 1.01 * step], dtype=torch.float64)
    mean = mixed_mean([x, x.double() + more], None, dtype)
    check_nearest(mean, [x, x.double() + more], [1.0, 1.0])
    assert mean.isinf().tolist() == [False, False, True, True]


def test_zeros_infinities_and_nan_are_those_of_the_standard() -> None:
    a = torch.tensor([-0.0, 0.0, math.inf, math.inf, math.nan], dtype=torch.bfloat16)
    b = torch.tensor([-0.0, -0.0, 1.0, -math.inf, 1.0])
    mean = mixed_mean([a, b], None, torch.bfloat16)
    assert mean[:3].tolist() == [0.0, 0.0, math.inf] and mean[3:].isnan().all()
    assert mean[:2].signbit().tolist() == [True, False]


def test_float8_is_not_mixed() -> None:
    x = torch.ones(2)
    with pytest.raises(SettingError, match="if types are mixed"):
        mixed_mean([x, x.to(torch.float8_e5m2)], None, torch.float32)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_nan_stays_nan(dtype: torch.dtype) -> None:
    """Also one of ones alone, from whose bits rounding would carry into the sign."""
    bits = torch.tensor([2**63 - 1, -1, 2047 << 52 | 1])
    nans = bits.view(torch.float64)
    assert mixed_mean([nans, nans], None, dtype).isnan().all()
    assert rounded_once(nans, dtype).isnan().all()
