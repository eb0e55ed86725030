from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.data import ClassPairs

seeds = st.integers(0, 2**40)
label_lists = st.lists(st.integers(1, 60), min_size=2, max_size=8).map(lambda n: np.repeat(np.arange(len(n)), n))


@given(label_lists, st.integers(1, 40), seeds)
def test_client_i_holds_class_i_mod_c_and_at_most_one_other_in_even_shares(
    labels: np.ndarray, clients: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(labels)
    classes = int(labels.max()) + 1
    try:
        parts = ClassPairs(clients)(labels, seed)
    except ValueError as error:
        assert re.fullmatch(rf"ClassPairs.clients = {clients}: must be (fewer|at most {len(labels)}, ).*", str(error))
        return
    used = np.concatenate(parts)
    counts = np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
    assert len(parts) == clients and counts.sum(axis=1).min() > 0
    assert len(np.unique(used)) == len(used)
    assert all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)
    assert (counts > 0).sum(axis=1).max() <= 2
    for i, row in enumerate(counts):
        rest = np.delete(row, i % classes)
        assert np.count_nonzero(rest) <= 1
    for c, column in enumerate(counts.T):
        classes_held = column[column > 0]
        assert classes_held.size == 0 or classes_held.max() - classes_held.min() <= 1
        assert column.sum() in ((labels == c).sum(), 0)
    if clients >= classes:
        assert len(used) == len(labels)
    assert all(np.array_equal(a, b) for a, b in zip(parts, ClassPairs(clients)(labels, seed), strict=True))


def test_on_digits_every_client_has_exactly_two_classes_and_the_second_is_any_other() -> None:
    labels = np.repeat(np.arange(10), 744)
    pairs = set()
    for seed in range(60):
        for i, part in enumerate(ClassPairs(20)(labels, seed)):
            classes_held = set(labels[part].tolist())
            assert len(classes_held) == 2 and i % 10 in classes_held
            pairs.add((i % 10, *(classes_held - {i % 10})))
    assert len(pairs) == 90


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: ClassPairs(4)(np.arange(3), 0), r"ClassPairs.clients = 4: must be at most 3, for 3 samples"),
        (lambda: ClassPairs(2)(np.zeros(6, int), 0), r"ClassPairs: classes = 1: there must be at least 2"),
        (
            lambda: ClassPairs(6)(np.array([0, 1, 1, 1, 1, 1]), 0),
            r"ClassPairs.clients = 6: must be fewer: client \d would hold no sample",
        ),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)
