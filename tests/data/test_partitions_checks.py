"""Every partition passes the check that users have for their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsash.data import PARTITIONS
from fedsash.data.partitions import (
    IID,
    ClassPairs,
    Dirichlet,
    DirichletClasses,
    DirichletReuse,
    Domains,
    Pachinko,
    Quantity,
    Shards,
    Users,
)
from fedsash.testing import check_partition

RNG = np.random.default_rng(1)
COARSE = np.array([0, 0, 1, 1, 1])
Y = RNG.integers(0, 5, 600)
GIVEN: list[tuple[Any, tuple[Any, ...]]] = [
    (IID(7), ()),
    (Shards(6), ()),
    (ClassPairs(10), ()),
    (Dirichlet(6, 0.3), ()),
    (DirichletClasses(6, 1.0), ()),
    (DirichletReuse(6, 0.3), ()),
    (Quantity(6, 0.5), ()),
    (Pachinko(5, samples=20), (Y, COARSE[Y])),
    (Users(), (RNG.integers(0, 9, 600),)),
    (Domains(2), (RNG.integers(0, 3, 600), Y)),
]


@pytest.mark.parametrize("rule, fields", GIVEN, ids=[type(rule).__name__ for rule, _ in GIVEN])
def test_every_partition_passes_its_check(rule: Any, fields: tuple[Any, ...]) -> None:
    check_partition(rule, *fields)


def test_none_is_forgotten_but_for_those_of_another_library() -> None:
    assert {type(rule) for rule, _ in GIVEN} == {make for name, make in PARTITIONS.items() if name != "flwr"}


class Remembers:
    """Cuts at random, with the global generator, and remembers how."""

    def __init__(self) -> None:
        self.cuts: dict[int, list[np.ndarray[Any, Any]]] = {}

    def __call__(self, y: np.ndarray[Any, Any], seed: int) -> list[np.ndarray[Any, Any]]:
        return self.cuts.setdefault(seed, np.array_split(np.random.permutation(len(y)), 3))


def test_one_that_remembers_its_own_draws_is_found() -> None:
    with pytest.raises(AssertionError, match="it must be a pure function of labels and seed"):
        check_partition(Remembers())
