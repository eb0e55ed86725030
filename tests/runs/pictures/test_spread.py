"""Names beside the ends of lines are moved apart as little as possible."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.runs.pictures.paper import spread


@settings(deadline=None)
@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    others=st.lists(st.floats(0, 1), min_size=12, max_size=12),
    gap=st.floats(0.001, 0.08),
)
def test_names_are_spread_as_little_as_possible(values: list[float], others: list[float], gap: float) -> None:
    places = spread(values, gap, 0, 1)
    apart = sorted(places)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(apart))
    assert apart[0] >= -1e-9 and apart[-1] <= 1 + 1e-9
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [places[i] for i in order] == apart
    room = 1 - (len(values) - 1) * gap
    other = [room * x + i * gap for i, x in enumerate(sorted(others[: len(values)]))]
    distance = sum((places[i] - values[i]) ** 2 for i in order)
    assert distance <= sum((x - values[i]) ** 2 for i, x in zip(order, other, strict=True)) + 1e-9


@given(values=st.lists(st.integers(0, 20), min_size=1, max_size=10, unique=True))
def test_names_that_are_apart_stay(values: list[int]) -> None:
    assert spread(values, 1, 0, 20) == pytest.approx(values)
