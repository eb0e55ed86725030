"""The correctly rounded weighted mean of tensors of several floating types, rounded once, to one of them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import frexp, inf, isinf

import torch
from torch import Tensor

from ..settings.errors import check
from .exact_means import rounded_once, weighted_mean

MIXED = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""The types that may be mixed: float64 holds the numbers of each of them."""


def mixed_mean(values: Sequence[Tensor], weights: Sequence[float] | None, dtype: torch.dtype) -> Tensor:
    """`sum_i w_i x_i / sum_i w_i` for tensors of one shape, correctly rounded (half to even) to the type `dtype`.

    The mean in float64 is the nearest to the exact one. It rounds to the type as the exact one does, unless its two
    neighbours round to different numbers: then it lies at the middle between these, and fractions decide.

    Raises `SettingError` for other types than those of `MIXED`, and for what `weighted_mean` refuses.
    """
    for kind in (dtype, *(x.dtype for x in values)):
        check(kind in MIXED, "values", str(kind), "must be float64, float32, float16 or bfloat16, if types are mixed")
    wide = [x.detach().to(torch.float64) for x in values]
    nearest = weighted_mean(wide, weights)
    if dtype == torch.float64:
        return nearest
    mean = rounded_once(nearest, dtype)
    lower = rounded_once(torch.nextafter(nearest, torch.full_like(nearest, -inf)), dtype)
    upper = rounded_once(torch.nextafter(nearest, torch.full_like(nearest, inf)), dtype)
    undecided = nearest.isfinite() & (lower != upper)
    for place in undecided.nonzero().tolist():
        index = tuple(place)
        exact = _exact_mean([float(x[index]) for x in wide], weights)
        mean[index] = _nearest_of_two(exact, lower[index], upper[index])
    return mean


def _exact_mean(numbers: Sequence[float], weights: Sequence[float] | None) -> Fraction:
    if weights is None:
        weights = [1.0] * len(numbers)
    total = Fraction()
    for number, weight in zip(numbers, weights, strict=True):
        total += Fraction(number) * Fraction(weight)
    return total / sum(map(Fraction, weights))


def _nearest_of_two(exact: Fraction, lower: Tensor, upper: Tensor) -> Tensor:
    """Of two neighbours of a type the one that is nearer to a fraction; of two as near, the even one."""
    middle = (_fraction(lower) + _fraction(upper)) / 2
    if exact < middle:
        return lower
    if exact > middle:
        return upper
    size = {2: torch.int16, 4: torch.int32}[lower.element_size()]
    if int(lower.view(size)) & 1 == 0:
        return lower
    return upper


def _fraction(number: Tensor) -> Fraction:
    """A number; for infinity, the power of two that would be next after the largest number."""
    value = float(number)
    if not isinf(value):
        return Fraction(value)
    beyond = Fraction(2) ** frexp(torch.finfo(number.dtype).max)[1]
    return beyond if value > 0 else -beyond
