from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fedsash.vector.randomness import Purpose, fold, generator, key, keys, to_tensor, uniform

seeds = st.integers(0, 2**64 - 1)
words = st.integers(-(2**63), 2**63 - 1)
numbers = st.lists(st.integers(0, 2**63 - 1), max_size=4)
purposes = st.sampled_from(Purpose)

BINS = 64
FAR = BINS + 8 * (2 * BINS) ** 0.5
"""A chi-square with so many degrees of freedom exceeds this about once in 10**10."""


def chi_square(values: NDArray[Any], *others: NDArray[Any]) -> float:
    """Pearson's statistic against the uniform distribution on the unit cube, with about `BINS` cells."""
    dimensions = 1 + len(others)
    side = round(BINS ** (1 / dimensions))
    cell = sum((v * side).astype(np.int64) * side**d for d, v in enumerate((values, *others)))
    counts = np.bincount(cell, minlength=side**dimensions)
    expected = len(values) / side**dimensions
    return float(((counts - expected) ** 2 / expected).sum())


def draws(h: int | NDArray[np.uint64], counter: Tensor) -> NDArray[np.float64]:
    tensor = to_tensor(np.atleast_1d(np.asarray(h, dtype=np.uint64)))
    return uniform(tensor, counter).double().numpy()


@given(seed=seeds, purpose=purposes, numbers=numbers)
def test_keys_and_generators_are_pure(seed: int, purpose: Purpose, numbers: list[int]) -> None:
    assert key(seed, purpose, *numbers) == key(seed, purpose, *numbers)
    one = generator(seed, purpose, *numbers)
    two = generator(seed, purpose, *numbers)
    one.random(3)
    assert np.array_equal(generator(seed, purpose, *numbers).random(4), two.random(4))


@given(seed=seeds, purpose=purposes, round=st.integers(0, 10**9), clients=st.lists(st.integers(0, 10**9), max_size=9))
def test_the_keys_of_clients_are_each_ones_key(seed: int, purpose: Purpose, round: int, clients: list[int]) -> None:
    h = keys(seed, purpose, round, np.array(clients, dtype=np.int64))
    assert h.dtype == np.uint64 and h.shape == (len(clients),)
    assert h.tolist() == [key(seed, purpose, round, client) for client in clients]


@given(seed=seeds, numbers=numbers, more=st.integers(0, 2**63 - 1))
def test_fold_appends_a_number(seed: int, numbers: list[int], more: int) -> None:
    h = np.array([key(seed, Purpose.BATCHES, *numbers)], dtype=np.uint64)
    assert fold(h, more).tolist() == fold(h, np.array([more])).tolist() == [key(seed, Purpose.BATCHES, *numbers, more)]


def test_fold_broadcasts() -> None:
    h = keys(0, Purpose.BATCHES, 0, np.arange(3))
    places = np.arange(4)
    together = fold(h[:, None], places)
    assert together.shape == (3, 4)
    assert all(fold(h[i : i + 1], int(j)) == together[i, j] for i in range(3) for j in places)


def test_tuples_that_differ_in_seed_purpose_length_or_number_share_no_stream() -> None:
    """Zeros at the end, and words that only differ in where a 64-bit number is cut, are where seeds often collide."""
    some = [0, 1, 2, 2**32, 2**32 + 1, 2**63]
    tails = [t for length in range(3) for t in itertools.product(some, repeat=length)]
    tuples = list(itertools.product(some, (Purpose.MODEL, Purpose.PARTITION), tails))
    assert len({key(s, p, *t) for s, p, t in tuples}) == len(tuples)
    assert len({generator(s, p, *t).integers(2**63) for s, p, t in tuples}) == len(tuples)


@given(h=words, counter=st.integers(0, 2**32 - 1))
def test_uniform_lies_in_the_unit_interval_on_its_grid(h: int, counter: int) -> None:
    u = uniform(torch.tensor(h), torch.tensor(counter))
    assert u.dtype == torch.float32 and 0 <= u < 1
    assert (u.double() * 2**24).frac() == 0


@settings(max_examples=50)
@given(h=st.lists(words, min_size=1, max_size=5), counters=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5))
def test_a_draw_does_not_depend_on_the_shape_it_is_drawn_in(h: list[int], counters: list[int]) -> None:
    table = uniform(torch.tensor(h)[:, None], torch.tensor(counters))
    one_by_one = [[float(uniform(torch.tensor(a), torch.tensor(c))) for c in counters] for a in h]
    assert table.tolist() == one_by_one
    assert torch.equal(uniform(torch.tensor(h)[:, None, None], torch.tensor(counters).view(1, -1, 1)), table[..., None])


def test_uniform_is_the_same_under_vmap() -> None:
    h = to_tensor(keys(1, Purpose.STEP, 0, np.arange(5)))
    counter = torch.arange(7)
    table = uniform(h[:, None], counter)
    assert torch.equal(torch.vmap(uniform, (0, None))(h, counter), table)
    assert torch.equal(torch.vmap(lambda c: uniform(h, c))(counter), table.T)


def test_keys_become_tensors_bit_by_bit() -> None:
    h = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert to_tensor(h).tolist() == [0, 1, -(2**63), -1]


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_draws_look_uniform(seed: int) -> None:
    counter = torch.arange(2**16)
    assert chi_square(draws(key(seed, Purpose.STEP, 0, 0), counter)) < FAR
    assert chi_square(draws(keys(seed, Purpose.STEP, 0, np.arange(2**16)), torch.zeros(1, dtype=torch.int64))) < FAR
    assert chi_square((keys(seed, Purpose.SAMPLING, 3, np.arange(2**16)) >> np.uint64(11)) * 2.0**-53) < FAR


NEIGHBOURS: dict[str, Callable[[int], int]] = {
    "seed": lambda seed: key(seed + 1, Purpose.STEP, 5, 8),
    "purpose": lambda seed: key(seed, Purpose.SAMPLING, 5, 8),
    "round": lambda seed: key(seed, Purpose.STEP, 6, 8),
    "client": lambda seed: key(seed, Purpose.STEP, 5, 9),
    "layer": lambda seed: (key(seed, Purpose.STEP, 5, 8) + (1 << 48)) % 2**64,
    "sample": lambda seed: (key(seed, Purpose.STEP, 5, 8) + (1 << 32)) % 2**64,
    "halves exchanged": lambda seed: sum(divmod(key(seed, Purpose.STEP, 5, 8) << 32, 2**64)),
    "lowest bit": lambda seed: key(seed, Purpose.STEP, 5, 8) ^ 1,
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS.values(), ids=NEIGHBOURS)
@pytest.mark.parametrize("seed", [0, 7])
def test_draws_of_neighbouring_keys_look_independent(neighbour: Callable[[int], int], seed: int) -> None:
    counter = torch.arange(2**16)
    one = draws(key(seed, Purpose.STEP, 5, 8), counter)
    other = draws(neighbour(seed), counter)
    assert not np.array_equal(one, other)
    assert chi_square(one, other) < FAR
    assert abs(np.corrcoef(one, other)[0, 1]) < 7 / len(one) ** 0.5


@pytest.mark.parametrize("lag", [1, 2, 64, 4096])
def test_draws_of_neighbouring_counters_look_independent(lag: int) -> None:
    u = draws(key(0, Purpose.STEP, 0, 0), torch.arange(2**16 + 2 * lag))
    pairs = u[: 2**16], u[lag : lag + 2**16]
    assert chi_square(*pairs) < FAR
    assert chi_square(*pairs, u[2 * lag :]) < FAR
    assert abs(np.corrcoef(*pairs)[0, 1]) < 7 / 2**8
