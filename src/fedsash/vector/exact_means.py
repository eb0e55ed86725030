"""The correctly rounded weighted mean of stored tensors: `sum_i w_i x_i / sum_i w_i`, rounded once, to their own type.

A mean in float32 that is then stored as bfloat16 was rounded twice, and may be the wrong one of two neighbours. Here
each entry is the number of the type that is nearest to the exact mean (half to even). Three ways lead there, each for
the entries that the way before could not decide:

1. The mean in float64: exponents prove that no sum of a chunk has an error, or a bound of the error gives two numbers,
   with the exact mean between them, that are rounded alike;
2. the same for each entry, by its own exponents; here sums of float64 numbers are pairs of such numbers;
3. integers.

Zeros, infinities and NaN are those of IEEE 754: an exact mean of zero is -0 if every `w_i x_i` is -0, else +0; one
that is rounded to zero keeps its sign; infinities of both signs, and infinity times zero, give NaN. A mean is infinite
among finite numbers only if the exact one rounds there (NaN in float8_e4m3fn, which has no infinity).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp, gcd, inf, isfinite, ldexp, nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..settings.errors import check
from .exact_sums import two_sum

CHUNK = 1 << 15
"""Entries at a time: what is calculated of them stays in a core's cache, and PyTorch uses one thread for them."""

SMALL = 1 << 20
"""Weights that are proportional to integers whose sum is at most this can be proved to be summed without an error."""

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)

WITHOUT_INFINITY = FLOAT8[:1]
"""PyTorch makes the largest number of what is too large for this type, or, in some versions, NaN."""

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, *FLOAT8)

QUICK = (torch.float32, torch.float16, torch.bfloat16)
"""What a processor rounds to at once."""

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

Bits = np.ndarray[Any, np.dtype[Any]]


def weighted_mean(values: Sequence[Tensor], weights: Sequence[float] | None) -> Tensor:
    """`sum_i w_i x_i / sum_i w_i`, correctly rounded (half to even), for tensors x_i of one floating type and shape.

    The weights are float64 numbers, taken as exact; None are equal ones. They may be negative, their sum not zero.
    The result is a new tensor on the CPU.

    Raises SettingError for no tensors, for different types or shapes, for another type, and for wrong weights.
    """
    _check_values(values)
    first = values[0]
    weighting = _Weights.of([1.0] * len(values) if weights is None else weights, len(values))
    float_format = _FloatFormat.of(first.dtype)
    rows = [x.detach().reshape(-1).cpu() for x in values]
    mean = torch.empty_like(rows[0])
    unknown: Sequence[Tensor | slice] = _slices(len(mean))
    if first.dtype in QUICK:
        indices = _quick_mean(rows, weighting, float_format, mean)
        unknown = [indices[part] for part in _slices(len(indices))]
    for entries in unknown:
        mean[entries] = _careful_mean([row[entries] for row in rows], weighting, float_format)
    return mean.view(first.shape)


def _slices(count: int) -> list[slice]:
    """All of so many entries, in chunks."""
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]


def rounded_once(v: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 numbers, each rounded once to another floating type; PyTorch rounds to float32 before 16 or 8 bits."""
    if dtype == torch.float64:
        return v
    nearest = torch.where(v.isnan(), v, _FloatFormat.of(dtype).rounded(v))  # the bits of a NaN may be carried over
    if dtype in WITHOUT_INFINITY:
        nearest.masked_fill_(nearest.abs() > torch.finfo(dtype).max, nan)
    return nearest.to(dtype)


def _check_values(values: Sequence[Tensor]) -> None:
    check(len(values) > 0, "values", [], "must have at least one tensor")
    first = values[0]
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in TYPES)
    check(first.dtype in TYPES, "values", str(first.dtype), f"must be of one of the types {names}")
    for x in values:
        check(x.dtype == first.dtype, "values", str(x.dtype), f"must all be of the type of the first, {first.dtype}")
        check(x.shape == first.shape, "values", tuple(x.shape), f"must all have the shape {tuple(first.shape)}")


@dataclass(frozen=True)
class _Weights:
    """The weights, divided by what divides them all, which changes no mean. Their sum is positive.

    `integers` and `total`, their sum, are exact. `floats` are these times a power of two, `divisor + rest` is their sum
    as a pair of float64 numbers, and `spread` is `sum |w_i| / sum w_i`. `small` weights are their integers; others are
    at most 1. If they are too different for float64, `spread` is infinite: then no bound decides anything.
    """

    integers: list[int]
    total: int
    floats: list[float]
    divisor: float
    rest: float
    spread: float
    small: bool

    @classmethod
    def of(cls, weights: Sequence[float], count: int) -> _Weights:
        check(len(weights) == count, "weights", len(weights), f"must be as many as the tensors, {count}")
        for weight in weights:
            check(isfinite(weight), "weights", weight, "must be finite")
        ratios = [float(weight).as_integer_ratio() for weight in weights]
        denominator = max(below for _, below in ratios)  # all are powers of two
        integers = [above * (denominator // below) for above, below in ratios]
        total = sum(integers)
        check(total != 0, "weights", list(weights), "must not sum to zero")
        divisor = gcd(*integers) if total > 0 else -gcd(*integers)
        integers = [integer // divisor for integer in integers]
        return cls._of_integers(integers, total // divisor)

    @classmethod
    def _of_integers(cls, integers: list[int], total: int) -> _Weights:
        magnitude = sum(abs(integer) for integer in integers)
        small = magnitude <= SMALL
        scale = 1 if small else 1 << max(abs(integer) for integer in integers).bit_length()
        floats = [integer / scale for integer in integers]  # exact, or so small that the weights are uneven
        smallest = min(abs(integer) for integer in integers if integer)
        uneven = smallest << 700 < scale or total << 100 < scale
        divisor = 1.0 if uneven else total / scale
        above, below = divisor.as_integer_ratio()
        rest = 0.0 if uneven else (total * below - above * scale) / (scale * below)
        spread = inf if uneven else magnitude / total
        return cls(integers, total, floats, divisor, rest, spread, small)


@dataclass(frozen=True)
class _FloatFormat:
    """A floating type: `precision` is the number of its significant bits, `lowest` the exponent of its least number.

    `largest` are the bits of its largest finite number.
    """

    dtype: torch.dtype
    precision: int
    lowest: int
    largest: int

    @classmethod
    def of(cls, dtype: torch.dtype) -> _FloatFormat:
        limits = torch.finfo(dtype)
        precision = 2 - frexp(limits.eps)[1]
        lowest = frexp(limits.smallest_normal)[1] - precision
        largest = int(_bits(torch.tensor([limits.max], dtype=torch.float64).to(dtype))[0])
        return cls(dtype, precision, lowest, largest)

    def rounded(self, v: Tensor) -> Tensor:
        """Float64 numbers, each rounded once to a number of this type, a narrower one; as float64.

        Numbers that are too large have as many bits, and become infinite when they are converted.
        """
        if self.dtype == torch.float32:
            return v.to(torch.float32).to(torch.float64)
        drop = 53 - self.precision
        bits = v.view(torch.int64)
        odd = (bits >> drop) & 1
        nearest = ((bits + odd + ((1 << (drop - 1)) - 1)) & -(1 << drop)).view(torch.float64)
        # A float64 number of this size has no bits below the least subnormal number: adding it rounds to a multiple.
        large = 1.5 * ldexp(1.0, 52 + self.lowest)
        multiple = torch.copysign((v + large) - large, v)
        return torch.where(v.abs() < ldexp(1.0, self.lowest + self.precision - 1), multiple, nearest)

    def nearest(self, numerator: int, denominator: int, exponent: int) -> float:
        """`numerator / denominator * 2^exponent`, the denominator positive, rounded once to this type."""
        size = abs(numerator)
        if size == 0:
            return 0.0
        power = size.bit_length() - denominator.bit_length()
        if size << max(-power, 0) < denominator << max(power, 0):
            power -= 1
        last = max(exponent + power - (self.precision - 1), self.lowest)
        shift = last - exponent
        below = denominator << max(shift, 0)
        quotient, remainder = divmod(size << max(-shift, 0), below)
        if 2 * remainder > below or (2 * remainder == below and quotient % 2 == 1):
            quotient += 1
        try:
            value = ldexp(quotient, last)
        except OverflowError:
            value = inf
        return value if numerator > 0 else -value


def _bits(x: Tensor) -> Bits:
    """The bits of numbers `[d]` as unsigned integers; it shares their memory."""
    size = x.element_size()
    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    bits: Bits = x.view(signed).numpy().view(UNSIGNED[size])
    return bits


def _largest(rows: Sequence[Bits]) -> Bits:
    """Twice the bits of each entry's largest magnitude."""
    largest = np.zeros_like(rows[0])
    twice = np.empty_like(largest)
    for bits in rows:
        np.add(bits, bits, out=twice)  # the sign falls out
        np.maximum(largest, twice, out=largest)
    return largest


def _smallest(rows: Sequence[Bits]) -> Bits:
    """Twice the bits of each entry's smallest magnitude that is not zero, less one."""
    one = rows[0].dtype.type(1)
    smallest = np.full_like(rows[0], np.iinfo(rows[0].dtype).max)
    twice = np.empty_like(smallest)
    for bits in rows:
        np.add(bits, bits, out=twice)
        np.subtract(twice, one, out=twice)  # zero becomes the largest integer
        np.minimum(smallest, twice, out=smallest)
    return smallest


def _quick_mean(rows: list[Tensor], weights: _Weights, float_format: _FloatFormat, mean: Tensor) -> Tensor:
    """Write the rounded mean of rows `[d]` into `mean`, `[d]`; the indices of the entries that it does not decide."""
    all_bits = [_bits(row) for row in rows]
    unknown = [torch.empty(0, dtype=torch.int64)]
    for part in _slices(len(mean)):
        bits = [row[part] for row in all_bits]
        largest = _largest(bits)
        centre = _by_floats([row[part] for row in rows], weights)
        if _all_exact(weights, float_format, largest, bits):
            mean[part] = float_format.rounded(centre)
            continue
        bound = _bound(largest, weights, float_format)
        lower = (centre - bound).to(torch.float32)
        upper = (centre + bound).to(torch.float32)
        mean[part] = lower
        unknown.append(_undecided(lower, upper, float_format).nonzero().view(-1).add_(part.start))
    return torch.cat(unknown)


def _undecided(lower: Tensor, upper: Tensor, float_format: _FloatFormat) -> Tensor:
    """Where numbers `[d]` between two, which were rounded to float32, may be rounded to another number than these.

    If both became one number, which is not halfway between two numbers of a narrower type, then it and all numbers that
    were between them are rounded to the same one of that type.
    """
    bits = lower.view(torch.int32)
    undecided = (bits != upper.view(torch.int32)).logical_or_(lower.isnan())
    drop = 24 - float_format.precision
    if drop > 0:
        undecided.logical_or_((bits & ((1 << drop) - 1)) == 1 << (drop - 1))
    if float_format.dtype == torch.float16:  # its subnormal numbers have fewer bits
        undecided.logical_or_(lower.abs() < torch.finfo(torch.float16).smallest_normal)
    return undecided


def _careful_mean(rows: list[Tensor], weights: _Weights, float_format: _FloatFormat) -> Tensor:
    """The rounded mean `[d]` of rows `[d]`, decided for each entry by its exponents, a bound, or integers."""
    bits = [_bits(row) for row in rows]
    largest = _largest(bits)
    exact = torch.from_numpy(largest == 0)  # whatever the weights
    if weights.small:
        exact |= torch.from_numpy(_exact(weights, float_format, largest, _smallest(bits)))
    if float_format.precision == 53:
        mean, decided = _by_pairs(rows, weights, largest, exact)
    else:
        centre = _by_floats(rows, weights)
        bound = _bound(largest, weights, float_format).masked_fill_(exact, 0.0)
        mean = float_format.rounded(centre - bound)
        decided = mean.view(torch.int64) == float_format.rounded(centre + bound).view(torch.int64)
    special = torch.from_numpy(largest > largest.dtype.type(2 * float_format.largest))
    unknown = (~(decided | special)).nonzero().view(-1)
    if len(unknown):
        mean[unknown] = _by_integers([row[unknown] for row in rows], weights, float_format)
    if special.any():
        where = special.nonzero().view(-1)
        mean[where] = _not_finite([row[where] for row in rows], weights)
    if float_format.dtype in WITHOUT_INFINITY:
        mean.masked_fill_(mean.abs() > torch.finfo(float_format.dtype).max, nan)
    return mean.to(float_format.dtype)  # exact, or it overflows


def _by_floats(rows: list[Tensor], weights: _Weights) -> Tensor:
    """The mean `[d]` by sums in float64."""
    total = torch.empty(len(rows[0]), dtype=torch.float64)
    row = torch.empty_like(total)
    for i, (x, weight) in enumerate(zip(rows, weights.floats, strict=True)):
        row.copy_(x)
        if i == 0:
            torch.mul(row, weight, out=total)
        else:
            total.add_(row, alpha=weight)
    return total.div_(weights.divisor)


def _bound(largest: Bits, weights: _Weights, float_format: _FloatFormat) -> Tensor:
    """A bound `[d]` of the error of sums in float64.

    It is that of n + 2 roundings, each at most 2^-53 of `sum |w_i| max |x_i|`, and twice that, with room for its own.
    """
    most = torch.from_numpy(largest >> largest.dtype.type(1)).view(torch.uint8).view(float_format.dtype)
    return most.to(torch.float64).mul_((len(weights.floats) + 8) * 2.0**-52 * weights.spread)


def _room(weights: _Weights, float_format: _FloatFormat) -> int:
    """By how much the exponents of numbers may differ if their weighted sum is to have no error.

    Let u be the last bit of the smallest number. Each w_i x_i, the weights small integers, is a multiple of u; if
    `sum |w_i| max |x_i| <= 2^53 u`, so is each sum, without an error. Nor does the quotient's rounding to float64 make
    a tie of what is none. For a tie t, W the sum of the weights, t W is a multiple of the last bit of the sum s (t has
    at most 25 bits, W at most 21): they are equal or differ by that bit, and then s / W differs from t by more than
    float64's rounding does.

    For float64 the sum is a pair, and V is `sum |w_i|`, at least n. The lower half's terms are multiples of u, too, and
    at most 2n of them, each below 2^-53 V max |x_i|. So it has no error if n V max |x_i| <= 2^104 u, and neither has
    the division's remainder R, which is at most three times W last bits of the quotient. It is off a tie by 0, or by
    u / (4 W) at least, more than the rounding of R / W if 24 V^2 max |x_i| < 2^104 u.
    """
    magnitude = sum(abs(integer) for integer in weights.integers)
    if float_format.precision == 53:
        return 48 - 2 * magnitude.bit_length()
    return 53 - float_format.precision - magnitude.bit_length()


def _exact(weights: _Weights, float_format: _FloatFormat, largest: Bits, smallest: Bits) -> Bits:
    """Which means `[d]` with small weights have no error before they are rounded."""
    precision = largest.dtype.type(float_format.precision)
    highest = np.maximum((largest >> precision).astype(np.int64), 1)
    lowest = np.maximum(((smallest + largest.dtype.type(1)) >> precision).astype(np.int64), 1)
    exact: Bits = highest - lowest <= _room(weights, float_format)
    return exact


def _all_exact(weights: _Weights, float_format: _FloatFormat, largest: Bits, bits: list[Bits]) -> bool:
    """Whether no entry's mean has an error before it is rounded, by the extremes of them all."""
    if not weights.small:
        return False
    highest = largest.max(keepdims=True)
    lowest = _smallest(bits).min(keepdims=True)
    return bool(_exact(weights, float_format, highest, lowest)[0])


def _by_pairs(rows: list[Tensor], weights: _Weights, largest: Bits, exact: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded mean `[d]` of float64 rows by sums that are pairs of float64 numbers, and where it is decided.

    `exact` says where exponents prove the sum exact, `[d]`.

    All is scaled so that the largest number is about 1, and then back: no sum overflows. The pair's error is about
    2 n^2 2^-106 sum |w_i x_i| at most (Ogita, Rump and Oishi, "Accurate sum and dot product", 2005, section 5).
    """
    finite = largest[largest <= np.uint64(2 * 0x7FEFFFFFFFFFFFFF)]
    field = int(finite.max()) >> 53 if len(finite) else 1023
    exponent = max(field - 1023, -1000)
    scale = ldexp(1.0, -exponent)
    high = torch.zeros(len(largest), dtype=torch.float64)
    low = torch.zeros_like(high)
    plain = torch.zeros_like(high)
    for i, (row, weight) in enumerate(zip(rows, weights.floats, strict=True)):
        x = row * scale
        product = x
        if weight != 1:
            product, below = _two_product(x, weight)
            low += below
        plain = product if i == 0 else plain + product
        high, rest = two_sum(high, product)
        low += rest
    zero = torch.from_numpy(largest == 0)
    high, low = two_sum(high, low)
    quotient = high / weights.divisor
    product, error = _two_product(quotient, weights.divisor)
    remainder = ((high - product) - error) + (low - quotient * weights.rest)
    quotient, rest = two_sum(quotient, remainder / weights.divisor)
    most = torch.from_numpy(largest >> np.uint64(1)).view(torch.float64) * scale
    # Twice the sum's error and more than those of the division; then what may have been lost below 2^-1022.
    bound = most * (((len(rows) + 4) ** 2 + 64) * 2.0**-104 * weights.spread) + 2.0**-900
    bound.masked_fill_(exact & (most > 2.0**-900), 0.0)
    lower = quotient + (rest - bound)
    upper = quotient + (rest + bound)
    mean = lower * ldexp(1.0, exponent)
    decided = (lower == upper) & (mean.abs() > 2.0**-1021)
    return torch.where(zero, plain, mean), decided | zero


def _two_product(x: Tensor, y: float) -> tuple[Tensor, Tensor]:
    """`(p, e)` with `p = x y` rounded and `p + e = x y` exactly (Dekker), unless something is very large or small."""
    product = x * y
    x_high, x_low = _halves(x)
    y_high, y_low = _halves(torch.tensor(y, dtype=torch.float64))
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """The upper and the lower half of the bits of float64 numbers (Veltkamp): products of two halves are exact."""
    large = x * (2.0**27 + 1)
    high = large - (large - x)
    return high, x - high


def _by_integers(rows: list[Tensor], weights: _Weights, float_format: _FloatFormat) -> Tensor:
    """The rounded mean `[k]` of finite rows `[k]`, in Python's integers."""
    mantissas: list[Bits] = []
    exponents: list[Bits] = []
    negative = np.ones(len(rows[0]), dtype=bool)  # every product is -0 or below
    for row, weight in zip(rows, weights.integers, strict=True):
        x = row.to(torch.float64).numpy()
        fraction, exponent = np.frexp(x)
        mantissas.append((fraction * 2.0**53).astype(np.int64))
        exponents.append(np.where(x == 0, 5000, exponent.astype(np.int64) - 53))
        negative &= np.signbit(x) != (weight < 0)
    least = np.min(exponents, axis=0)
    total = np.zeros(len(least), dtype=object)
    for mantissa, exponent, weight in zip(mantissas, exponents, weights.integers, strict=True):
        shift = np.where(mantissa == 0, 0, exponent - least)
        total += (mantissa.astype(object) << shift.astype(object)) * weight
    means = [float_format.nearest(t, weights.total, e) for t, e in zip(total.tolist(), least.tolist(), strict=True)]
    mean = torch.tensor(means, dtype=torch.float64)
    return torch.where((mean == 0) & torch.from_numpy(negative), -0.0, mean)


def _not_finite(rows: list[Tensor], weights: _Weights) -> Tensor:
    """The mean `[k]` of rows `[k]` that have an infinity or NaN in each entry. Finite numbers do not count."""
    total = torch.zeros(len(rows[0]), dtype=torch.float64)
    for row, weight in zip(rows, weights.integers, strict=True):
        x = row.to(torch.float64)
        sign = (weight > 0) - (weight < 0)
        total += torch.where(x.isfinite(), 0.0, x) * sign
    return total
