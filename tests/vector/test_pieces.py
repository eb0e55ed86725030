"""A vector in pieces is that vector, and averages of it are those of the vector in one piece."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.averages import EMA, Average, Observer, Observers, Pieces, Window
from fedsash.vector import exact_sums
from support.by_default import rotated
from support.trajectories import ONE_OF_EACH, follow, same_bits, trajectory

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any)


@given(lengths=LENGTHS, most=st.integers(1, 12), cuts=st.sets(st.integers(0, 54), max_size=6))
def test_chunks_and_cuts_are_the_vector_in_order(lengths: list[int], most: int, cuts: set[int]) -> None:
    w = torch.arange(float(sum(lengths)))
    pieces = Pieces(torch.split(w, lengths))
    chunks = list(pieces.chunks(most))
    assert torch.equal(torch.cat(chunks), w) and all(len(chunk) <= most for chunk in chunks)
    bounds = sorted(min(cut, len(w)) for cut in cuts)
    ranges = list(zip(bounds[::2], bounds[1::2], strict=False))
    expected = [w[start:stop] for start, stop in ranges]
    found = pieces.cut(ranges)
    assert found.size == sum(map(len, expected)) and torch.equal(
        torch.cat([*found.pieces, w[:0]]), torch.cat([*expected, w[:0]])
    )


def test_large_pieces_are_not_copied() -> None:
    w = torch.arange(20.0)
    assert [chunk.data_ptr() for chunk in Pieces([w[:10], w[10:]]).chunks(5)] == [
        w[i:].data_ptr() for i in (0, 5, 10, 15)
    ]


@pytest.mark.parametrize(
    "average, dtype, ranges",
    rotated(
        [*ONE_OF_EACH, EMA(0.7, precision="single"), Window(3, part="classifier")],
        [torch.float64, torch.float32, torch.bfloat16],
        [[(0, 7)], [(0, 2), (3, 7)]],
    ),
    ids=str,
)
def test_averages_of_pieces_are_those_of_the_whole(
    average: Average, dtype: torch.dtype, ranges: list[tuple[int, int]]
) -> None:
    models = trajectory(9, dtype=dtype)
    observers = Observers({"it": Observer(average, ranges)})

    class States:
        averages, past = observers.init(models[0])

    for round, w in enumerate(models[1:], start=1):
        observers.observe(States, Pieces([w[:3], w[3:3], w[3:4], w[4:]]), round)
    assert same_bits(
        observers.value(States, "it", models[-1]), follow(Observer(average, ranges), models).value(models[-1])
    )


def test_a_sum_of_pieces_gains_and_loses_models_exactly() -> None:
    models = trajectory(6, d=40, dtype=torch.float32)
    high = exact_sums.zero(models[0])
    low = exact_sums.zero(models[0])
    for w, gone in zip(models[1:], models[:-1], strict=True):
        exact_sums.add(high, low, plus=[Pieces([w[:7], w[7:29], w[29:]])], minus=[Pieces.of(gone)])
    assert torch.equal(high + low, models[-1].double() - models[0].double())


def spoilt(value: float, place: int) -> Sequence[torch.Tensor]:
    w = torch.ones(5000)
    w[place] = value
    return [torch.ones(3), w]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_is_found_wherever_it_is(value: float) -> None:
    assert not Pieces(spoilt(value, 4000)).finite() and not Pieces(spoilt(value, 60)).finite()
    assert Pieces(spoilt(1.0, 0)).finite()


def test_finite_values_whose_sum_overflows_are_finite() -> None:
    assert Pieces([torch.full((100,), 3e38)]).finite()
