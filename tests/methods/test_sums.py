"""Weighted sums: NumPy's, the same bytes wherever a piece is summed, and no zero with a sign."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.engines.uploads import Sums, equal_weights, pieces_of
from fedsash.vector.arrays import Ints, Vectors


@st.composite
def vectors_of(draw: st.DrawFn) -> tuple[np.ndarray, Vectors]:
    """The weights of some clients, and their vectors."""
    count = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = rng.random(count) + 0.1
    shapes = {"delta": (5,), "c": (2, 3), "tau": ()}
    vectors = {name: torch.from_numpy(rng.normal(size=(count, *shape))) for name, shape in shapes.items()}
    return weights / weights.sum(), vectors


def rows_of(vectors: Vectors, places: Any) -> Vectors:
    return {name: rows[places] for name, rows in vectors.items()}


def same(one: Vectors, other: Vectors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@given(clients=vectors_of(), pieces=st.integers(1, 4), data=st.data())
def test_the_mean_over_some_clients_is_numpys_average(clients: Any, pieces: int, data: st.DataObject) -> None:
    weights, vectors = clients
    places = sorted(data.draw(st.sets(st.sampled_from(range(len(weights))), min_size=1)))
    sums = Sums(weights, ("c",), pieces)
    sums.add(rows_of(vectors, places), np.array(places))
    mean = sums.mean(places)
    for name, rows in vectors.items():
        right = np.average(rows.numpy()[places], axis=0, weights=None if name == "c" else weights[places])
        torch.testing.assert_close(mean[name], torch.from_numpy(np.asarray(right)), rtol=1e-12, atol=1e-12)


@given(clients=vectors_of(), pieces=st.integers(1, 4))
def test_pieces_that_were_summed_elsewhere_give_the_bytes_of_those_summed_here(clients: Any, pieces: int) -> None:
    weights, vectors = clients
    here, merged = Sums(weights, ("c",), pieces), Sums(weights, ("c",), pieces)
    here.add(vectors, np.arange(len(weights)))
    for places in pieces_of(len(weights), pieces):
        if len(places):
            elsewhere = Sums(weights, ("c",), pieces)
            elsewhere.add(rows_of(vectors, places), places)
            merged.merge(elsewhere.totals(), places)
    assert same(merged.totals(), here.totals())


@given(clients=vectors_of(), pieces=st.integers(1, 4))
def test_a_mean_in_between_changes_nothing(clients: Any, pieces: int) -> None:
    weights, vectors = clients
    looked, alone = Sums(weights, (), pieces), Sums(weights, (), pieces)
    for place in range(len(weights)):
        before = looked.mean(list(range(place)))
        kept = {name: value.clone() for name, value in before.items()}
        for sums in (looked, alone):
            sums.add(rows_of(vectors, [place]), np.array([place]))
        assert same(before, kept)
    assert same(looked.totals(), alone.totals())


@pytest.mark.parametrize("blocks", [(0, 1, 2, 3), (0, 3)])
def test_no_sum_is_minus_zero(blocks: tuple[int, ...]) -> None:
    """Else the bytes of a model would depend on how clients are put together."""
    sums = Sums(equal_weights(3))
    for first, end in pairwise(blocks):
        sums.add({"delta": torch.full((end - first, 2), -0.0, dtype=torch.float64)}, np.arange(first, end))
    assert not torch.signbit(sums.totals()["delta"]).any()


@given(count=st.integers(0, 12), pieces=st.integers(1, 15))
def test_pieces_are_successive_and_as_equal_as_possible(count: int, pieces: int) -> None:
    found: list[Ints] = pieces_of(count, pieces)
    assert len(found) == pieces and np.concatenate(found).tolist() == list(range(count))
    sizes = [len(places) for places in found]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1
