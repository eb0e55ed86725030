"""The correctly rounded mean against exact rationals: every type, ties, subnormals, overflow, zeros, infinity, NaN."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from math import copysign, inf, isfinite, isnan, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsash.settings.errors import SettingError
from fedsash.vector import exact_means
from fedsash.vector.exact_means import CHUNK, TYPES, weighted_mean
from support.by_default import full, rotated, some

NAMES = [str(dtype).removeprefix("torch.") for dtype in TYPES]
BYTES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
of_each_type = pytest.mark.parametrize("dtype", TYPES, ids=NAMES)


def from_bits(bits: Sequence[int], dtype: torch.dtype) -> Tensor:
    size = dtype.itemsize
    packed = b"".join(struct.pack("<Q", number % 2 ** (8 * size))[:size] for number in bits)
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8).view(dtype)


def bits_of(x: float, dtype: torch.dtype) -> int:
    number = int(torch.tensor([x], dtype=torch.float64).to(dtype).view(BYTES[dtype.itemsize])[0])
    return number & ((1 << 8 * dtype.itemsize) - 1)


def magnitude(bits: int, dtype: torch.dtype) -> Fraction:
    """The value of a magnitude's bits; those after the largest finite number go on as if exponents had no end."""
    precision = 1 + round(-float(torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64).log2()))
    hidden = 1 << (precision - 1)
    least = Fraction(torch.finfo(dtype).smallest_normal) / hidden
    field, rest = divmod(bits, hidden)
    if field == 0:
        return rest * least
    return ((hidden + rest) << (field - 1)) * least


def nearest(exact: Fraction, dtype: torch.dtype) -> int:
    """The bits of the magnitude that is nearest to |exact|, half to even, by bisection of all magnitudes."""
    limit = bits_of(torch.finfo(dtype).max, dtype) + 1
    low, high = 0, limit
    if abs(exact) >= magnitude(limit, dtype):
        return limit
    while high - low > 1:
        middle = (low + high) // 2
        if magnitude(middle, dtype) <= abs(exact):
            low = middle
        else:
            high = middle
    below = abs(exact) - magnitude(low, dtype)
    above = magnitude(high, dtype) - abs(exact)
    if below == above:
        return low if low % 2 == 0 else high
    return low if below < above else high


def reference(column: Sequence[float], weights: Sequence[float], dtype: torch.dtype) -> int | None:
    """The bits of the rounded mean of some numbers; None is NaN."""
    turn = -1 if sum(map(Fraction, weights)) < 0 else 1
    signs = [0.0 if weight == 0 else turn * copysign(1.0, weight) for weight in weights]
    sign_bit = 1 << (8 * dtype.itemsize - 1)
    if not all(isfinite(x) for x in column):
        total = sum(sign * x for sign, x in zip(signs, column, strict=True) if not isfinite(x))
        if isnan(total):
            return None
        return bits_of(total, dtype)
    terms = [Fraction(weight) * Fraction(x) for weight, x in zip(weights, column, strict=True)]
    exact = sum(terms, Fraction(0)) / sum(map(Fraction, weights))
    negative = exact < 0
    if exact == 0:
        negative = all(copysign(1.0, x) * (sign or 1.0) < 0 for x, sign in zip(column, signs, strict=True))
    bits = nearest(exact, dtype)
    if bits > bits_of(torch.finfo(dtype).max, dtype) and dtype == torch.float8_e4m3fn:
        return None
    return bits + sign_bit * negative


def check_mean(values: Sequence[Tensor], weights: Sequence[float] | None) -> None:
    dtype = values[0].dtype
    mean = weighted_mean(values, weights)
    assert mean.dtype == dtype and mean.shape == values[0].shape
    got = mean.view(-1).view(BYTES[dtype.itemsize]).tolist()
    columns = list(zip(*(x.reshape(-1).to(torch.float64).tolist() for x in values), strict=True))
    for column, number, value in zip(columns, got, mean.view(-1).to(torch.float64).tolist(), strict=True):
        wanted = reference(column, weights or [1.0] * len(values), dtype)
        if wanted is None:
            assert isnan(value), (column, weights)
        else:
            assert number % 2 ** (8 * dtype.itemsize) == wanted, (column, weights, value)


def some_weights(count: int, kind: str, generator: torch.Generator) -> list[float] | None:
    if kind == "equal":
        return None
    if kind == "integers":
        return [float(1 + i % 7) for i in range(count)]
    if kind == "ema":
        return [0.9 ** (count - i) for i in range(count)]
    numbers: list[float] = torch.rand(count, generator=generator, dtype=torch.float64).tolist()
    return numbers


@of_each_type
@pytest.mark.parametrize("count, kind", rotated([1, 2, 7, 20, 50], ["equal", "integers", "ema", "random"]))
def test_the_mean_of_random_bits_is_correctly_rounded(dtype: torch.dtype, kind: str, count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    size = dtype.itemsize
    values = [
        torch.randint(0, 256, (24 * size,), generator=generator, dtype=torch.uint8).view(dtype) for _ in range(count)
    ]
    check_mean(values, some_weights(count, kind, generator))


@of_each_type
@pytest.mark.parametrize("kind, count", rotated(["equal", "integers", "ema", "random"], [2, 3, 20]))
def test_the_mean_of_numbers_of_one_size_is_correctly_rounded(dtype: torch.dtype, kind: str, count: int) -> None:
    """As weights of a network are; many of their equally weighted means are ties."""
    generator = torch.Generator().manual_seed(count)
    values = [torch.randn(60, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]
    check_mean(values, some_weights(count, kind, generator))


@of_each_type
@pytest.mark.parametrize(
    "weights", [None, full([1.0, 3.0, 1.0, 3.0]), [5.0, -2.0, 1.0, 0.0], full([1e5, 1.0, 7e5, 3.0])]
)
def test_exponents_around_those_that_prove_a_sum_exact(dtype: torch.dtype, weights: list[float] | None) -> None:
    """Numbers with few bits, so with many ties, and the last of them smaller and smaller."""
    generator = torch.Generator().manual_seed(9)
    small = torch.randint(-9, 10, (4, 60), generator=generator).double()
    small[2:] *= 2.0 ** -torch.arange(60)
    unit = 2.0 ** torch.randint(-3, 4, (60,), generator=generator).double()
    check_mean(list((small * unit).to(dtype)), weights)
    neighbours = (small * unit).to(dtype).double() * (1 + torch.finfo(dtype).eps)
    check_mean(list(neighbours.to(dtype)), weights)


@of_each_type
def test_ties_go_to_the_even_neighbour_and_what_is_near_a_tie_does_not(dtype: torch.dtype) -> None:
    """The means of neighbours are ties; a third number of the least size moves them off, or not."""
    largest = bits_of(torch.finfo(dtype).max, dtype)
    lower = [largest * k // 24 for k in range(24)]
    x = from_bits(lower, dtype)
    y = from_bits([bits + 1 for bits in lower], dtype)
    check_mean([x, y], None)
    check_mean([x, y], [0.3, 0.3])
    check_mean([x, y], [1e-300, 1e-300])
    least = from_bits([1] * 24, dtype)
    opposite = from_bits([1 + (1 << (8 * dtype.itemsize - 1))] * 24, dtype)
    check_mean([x, y, least, opposite], None)
    check_mean([x, y, least, opposite], [1.0, 1.0, 1e-9, 1e-9])
    check_mean([x, y, least], [1.0, 1.0, 2.0**-300])
    check_mean([x, y, opposite], [1.0, 1.0, 2.0**-300])


@of_each_type
@pytest.mark.parametrize("kind", some(["equal", "integers", "ema", "random"], "ema"))
def test_subnormal_numbers_and_means(dtype: torch.dtype, kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    normal = bits_of(torch.finfo(dtype).smallest_normal, dtype)
    sign = 1 << (8 * dtype.itemsize - 1)
    rows = torch.randint(0, min(3 * normal, 2**40), (5, 40), generator=generator).tolist()
    signs = torch.randint(0, 2, (5, 40), generator=generator).tolist()
    pairs = [zip(row, turned, strict=True) for row, turned in zip(rows, signs, strict=True)]
    values = [from_bits([bits + sign * turn for bits, turn in pair], dtype) for pair in pairs]
    check_mean(values, some_weights(5, kind, generator))


@of_each_type
@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_mean_of_the_largest_numbers_is_the_largest(dtype: torch.dtype, count: int) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor([largest, -largest], dtype=torch.float64).to(dtype)
    for weights in (None, [1e308] * count, [0.1 * (i + 1) for i in range(count)]):
        mean = weighted_mean([x] * count, weights)
        assert mean.to(torch.float64).tolist() == [largest, -largest]


@of_each_type
def test_a_mean_overflows_only_where_the_exact_one_rounds_there(dtype: torch.dtype) -> None:
    """With a negative weight a mean lies outside its numbers: 1.5 last bits above the largest, a half, and less."""
    largest = bits_of(torch.finfo(dtype).max, dtype)
    below = [largest, largest - 1, largest - 2, largest - 3, 0, 1]
    for sign in (0, 1 << (8 * dtype.itemsize - 1)):
        x = from_bits([largest + sign] * 6, dtype)
        y = from_bits([bits + sign for bits in below], dtype)
        for weight in (0.25, 0.5, 0.75, 0.4999999, 0.5000001, 2.0**-60):
            check_mean([x, y], [1 + weight, -weight])


@of_each_type
def test_a_zero_is_negative_if_every_product_is(dtype: torch.dtype) -> None:
    zero = torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0], dtype=torch.float64).to(dtype)
    other = torch.tensor([0.0, 0.0, -0.0, -0.0, -1.0], dtype=torch.float64).to(dtype)
    signs = weighted_mean([zero, other], None).to(torch.float64).signbit().tolist()
    assert signs == [False, False, False, True, False]
    for weights in (None, [0.1, 0.1], [1.0, 2.0], [0.1, 0.7], [0.0, 1.0], [2.0, -1.0], [0.7, -0.1], [1.0, 2.0**-800]):
        check_mean([zero, other], weights)


@of_each_type
def test_infinities_and_nan_are_those_of_the_sum(dtype: torch.dtype) -> None:
    """A finite sum that overflows on its way is no infinity."""
    largest = torch.finfo(dtype).max
    numbers = [inf, -inf, nan, largest, -largest, 0.0, -1.0]
    x = torch.tensor([a for a in numbers for _ in numbers], dtype=torch.float64).to(dtype)
    y = torch.tensor([b for _ in numbers for b in numbers], dtype=torch.float64).to(dtype)
    z = torch.full_like(x.to(torch.float64), largest).to(dtype)
    for weights in (None, [1.0, 2.0, 3.0], [0.1, 0.2, 0.7], [0.0, 1.0, 1.0], [-0.5, 3.0, 0.3], [1e-300, 1e300, 1.0]):
        check_mean([x, y, z], weights)


@of_each_type
@pytest.mark.parametrize(
    "weights",
    [
        [1.0, 2.0**-1074, 1e308],
        [1.0, -1.0, 2.0**-900],
        [-1.0, -2.0, -0.1],
        [1.0, -(1.0 - 2.0**-53), 1e-18],
        [3.0, -1.0, 0.0],
        [5e-324, 5e-324, 1e-323],
    ],
)
def test_weights_of_any_size_and_sign(dtype: torch.dtype, weights: list[float]) -> None:
    generator = torch.Generator().manual_seed(4)
    values = [torch.randn(12, generator=generator, dtype=torch.float64).to(dtype) for _ in weights]
    check_mean(values, weights)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[Tensor], list[float] | None]:
    dtype = draw(st.sampled_from(TYPES))
    count = draw(st.integers(1, 50))
    bits = st.integers(0, (1 << 8 * dtype.itemsize) - 1)
    values = [from_bits([draw(bits)], dtype) for _ in range(count)]
    weight = st.one_of(st.floats(1e-3, 1.0), st.floats(min_value=0.0, allow_infinity=False), st.just(1.0))
    weights = draw(st.none() | st.lists(weight, min_size=count, max_size=count).filter(any))
    return values, weights


@given(columns())
@settings(max_examples=60, deadline=None)
def test_any_numbers_with_any_weights(case: tuple[list[Tensor], list[float] | None]) -> None:
    values, weights = case
    check_mean(values, weights)


def test_a_bfloat16_is_not_rounded_twice() -> None:
    """The mean is just above a tie; float32 would round it to the tie, and bfloat16 that to the even neighbour."""
    x = [1.0, 1.0 + 2.0**-7, 2.0**-33, 0.0]
    values = [torch.tensor([number], dtype=torch.bfloat16) for number in x]
    mean = weighted_mean(values, [0.5, 0.5, 2.0**-60, 2.0**-60])
    exact = (1 + Fraction(1, 256) + Fraction(1, 2**93)) / (1 + Fraction(1, 2**59))
    assert exact < 1 + Fraction(1, 256) and mean.item() == 1.0
    mean = weighted_mean([*values[:2], torch.tensor([2.0], dtype=torch.bfloat16)], [0.5, 0.5, 2.0**-60])
    assert mean.item() == 1.0 + 2.0**-7
    twice = torch.tensor([1.0 + 2.0**-8 + 2.0**-60], dtype=torch.float64).float().bfloat16()
    assert twice.item() == 1.0


def test_tensors_of_several_chunks_have_a_mean_whatever_their_layout() -> None:
    """Numbers of 8 bits have sums and quotients without error here, so float64 is the reference."""
    generator = torch.Generator().manual_seed(5)
    values = [torch.randint(-99, 99, (2, CHUNK + 5), generator=generator).float().T for _ in range(4)]
    mean = weighted_mean(values, None)
    assert torch.equal(mean, sum(values, torch.zeros(())) / 4)
    assert torch.equal(weighted_mean(values, [0.25] * 4), mean)
    assert weighted_mean([torch.tensor(3.0, requires_grad=True)], [7.0]).item() == 3.0
    assert weighted_mean([torch.empty(0, 3)] * 2, None).shape == (0, 3)


@of_each_type
def test_entries_of_several_chunks_that_float64_does_not_decide_find_their_places(dtype: torch.dtype) -> None:
    """Chunks of ordinary numbers with ties, subnormal numbers, zeros, infinities and NaN here and there."""
    generator = torch.Generator().manual_seed(8)
    ordinary = torch.randn(2, 2 * CHUNK, generator=generator, dtype=torch.float64).to(dtype)
    places = [0, 5, CHUNK - 1, CHUNK, CHUNK + 7, 2 * CHUNK - 1]
    least = float(torch.finfo(dtype).smallest_normal) / 2
    special = torch.tensor([[1.0, least, 0.0, nan, -0.0, 2.0], [-1.0, -1.0, -0.0, 1.0, -0.0, 2.0]])
    ordinary[:, places] = special.to(torch.float64).to(dtype)
    for weights in (None, [0.1, 0.1], [0.3, 0.7]):
        mean = weighted_mean(list(ordinary), weights).double()
        wanted = weighted_mean(list(ordinary[:, places]), weights).double()
        assert torch.equal(mean[places].nan_to_num(9.0), wanted.nan_to_num(9.0))
        assert mean.isnan().sum() == 1
        check_mean(list(ordinary[:, places]), weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_equal_weights_of_what_networks_have_need_no_integers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So averaging a folder of checkpoints takes no longer than summing them."""
    generator = torch.Generator().manual_seed(6)
    values = [(torch.randn(CHUNK, generator=generator) / 50).to(dtype) for _ in range(20)]
    monkeypatch.setattr(exact_means, "_by_integers", None)
    mean = weighted_mean(values, None)
    assert (mean.double() - sum(x.double() for x in values) / 20).abs().max() < 2.0**-10


@pytest.mark.parametrize(
    ("values", "weights", "message"),
    [
        ([], None, "at least one tensor"),
        ([torch.zeros(2, dtype=torch.int64)], None, "must be of one of the types float64, float32"),
        ([torch.zeros(2), torch.zeros(2).half()], None, "the type of the first, torch.float32"),
        ([torch.zeros(2), torch.zeros(3)], None, r"the shape \(2,\)"),
        ([torch.zeros(2)], [1.0, 2.0], "as many as the tensors, 1"),
        ([torch.zeros(2)], [nan], "must be finite"),
        ([torch.zeros(2)] * 2, [1.0, -1.0], "must not sum to zero"),
    ],
)
def test_what_has_no_mean_is_refused(values: list[Tensor], weights: list[float] | None, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        weighted_mean(values, weights)


@pytest.mark.parametrize(
    "column",
    [
        [1.984375, 1.984375, 1.984375, 1.984375, 0.8125 + 7 * 2**-24, 2**-27 * (1 + 2**-23), -(2**-27)],
        [4.0, 4.0, 2**-21, 2**-30 * (1 + 2**-23), -(2**-30), 0.0, 0.0, 0.0],
    ],
    ids=["a bit too far", "seven bits too far"],
)
def test_a_sum_that_loses_its_last_bit_in_float64_is_not_taken_for_a_tie(column: list[float]) -> None:
    """The mean is above the middle of two numbers of float32, and on it without the smallest one's last bit."""
    values = [torch.tensor([x], dtype=torch.float32) for x in column]
    assert [float(value) for value in values] == column
    check_mean(values, None)


@pytest.mark.parametrize("column", [(2, 3, 4), (3, 4, 1)])
def test_a_subnormal_mean_of_float64_is_not_rounded_twice(column: tuple[int, ...]) -> None:
    """The mean is beside 2.5 or 3.5 times the least number, by less than float64's digits of it."""
    least = 2.0**-1074
    values = [torch.tensor([count * least], dtype=torch.float64) for count in column]
    check_mean(values, [1.0, 1.0, 2.0**-60])
    assert float(weighted_mean(values, [1.0, 1.0, 2.0**-60])) == 3 * least
