from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.data import Quantity

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 1000))
seeds = st.integers(0, 2**40)


@given(st.integers(1, 200), st.integers(1, 30), st.floats(1e-9, 1e9), st.integers(1, 9), seeds)
def test_every_sample_is_used_once_and_everyone_has_the_minimum(
    samples: int, clients: int, alpha: float, min_size: int, seed: int
) -> None:
    labels = np.zeros(samples, dtype=np.int64)
    rule = Quantity(clients, alpha, min_size)
    if clients * min_size > samples:
        with pytest.raises(ValueError, match=f"Quantity.clients = {clients}: must be at most {samples // min_size}, "):
            rule(labels, seed)
        return
    parts = rule(labels, seed)
    assert len(parts) == clients and min(part.size for part in parts) >= min_size
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))
    assert all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)
    assert all(np.array_equal(a, b) for a, b in zip(parts, rule(labels, seed), strict=True))


def test_another_seed_gives_another_partition() -> None:
    sizes = [[part.size for part in Quantity(10, 1)(LABELS, seed)] for seed in (0, 1)]
    assert sizes[0] != sizes[1]


def test_as_alpha_goes_to_infinity_sizes_are_equal_and_as_it_goes_to_0_one_client_has_all_but_the_minimum() -> None:
    equal = [part.size for part in Quantity(8, 1e9, 50)(LABELS, 0)]
    assert max(equal) - min(equal) <= 2
    assert sorted(part.size for part in Quantity(8, 1e-9, 50)(LABELS, 0)) == [50] * 7 + [9650]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 5.0])
def test_the_variance_of_sizes_is_that_of_the_dirichlet(alpha: float) -> None:
    """Var(p_i) = (N - 1) / (N^2 (N alpha + 1)); what goes beyond the minimum is p_i of the rest."""
    n = 20
    min_size = 10
    sizes = np.array([[part.size for part in Quantity(n, alpha, min_size)(LABELS, seed)] for seed in range(60)])
    p = (sizes - min_size) / (len(LABELS) - n * min_size)
    assert np.mean((p - 1 / n) ** 2) == pytest.approx((n - 1) / (n**2 * (n * alpha + 1)), rel=0.2)


def test_labels_are_iid() -> None:
    for part in Quantity(10, 1.0, 200)(LABELS, 0):
        counts = np.bincount(LABELS[part], minlength=10)
        expected = part.size / 10
        chi2 = ((counts - expected) ** 2 / expected).sum()
        assert chi2 < 28  # the thousandth part of draws with 9 degrees of freedom lies above


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Quantity(3, 1, 5)(LABELS[:14], 0), r"Quantity.clients = 3: must be at most 2, for 14 samples and at"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)
