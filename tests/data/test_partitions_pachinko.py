from __future__ import annotations

from collections.abc import Callable
from math import exp, lgamma
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.data import Pachinko, Samples, Source, Transform
from fedsash.data.partitions.by_labels import Mixture

FINE = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
COARSE = FINE // 5

concentrations = st.floats(1e-9, 1e9) | st.sampled_from([1e-9, 0.1, 10.0, 1e9])
trees = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=8)
seeds = st.integers(0, 2**40)


@given(trees, st.integers(1, 8), st.integers(1, 12), concentrations, concentrations, seeds)
def test_everyone_has_as_many_samples_and_no_sample_is_used_twice(
    tree: list[tuple[int, int]], clients: int, samples: int, alpha: float, beta: float, seed: int
) -> None:
    sizes, parents = map(np.array, zip(*tree, strict=True))
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 3, sizes))
    coarse = parents[labels // 3]
    n = len(labels)
    rule = Pachinko(clients, samples, alpha, beta)
    if clients * samples > n:
        with pytest.raises(
            ValueError, match=f"Pachinko.clients = {clients}: must be at most {n // samples}, "
        ) as caught:
            rule(labels, coarse, seed)
        assert "\n" not in str(caught.value)
        return
    parts = rule(labels, coarse, seed)
    assert [part.size for part in parts] == [samples] * clients
    assert all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)
    used = np.concatenate(parts)
    assert len(np.unique(used)) == clients * samples
    assert used.min() >= 0 and used.max() < n
    assert all(np.array_equal(a, b) for a, b in zip(parts, rule(labels, coarse, seed), strict=True))


def test_on_cifar100_every_image_is_used_once_and_another_seed_gives_another_partition() -> None:
    parts = Pachinko()(FINE, COARSE, 0)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(50_000))
    assert not all(np.array_equal(a, b) for a, b in zip(parts, Pachinko()(FINE, COARSE, 1), strict=True))


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), seeds)
@settings(max_examples=25)
def test_as_alpha_goes_to_0_each_client_holds_one_coarse_label_where_sizes_divide(
    branches: int, leaves: int, clients_a_branch: int, seed: int
) -> None:
    labels = np.repeat(np.arange(branches * leaves), 4 * clients_a_branch)
    coarse = labels // leaves
    parts = Pachinko(branches * clients_a_branch, 4 * leaves, alpha=1e-9)(labels, coarse, seed)
    assert all(len(np.unique(coarse[part])) == 1 for part in parts)


def test_as_beta_goes_to_infinity_the_labels_below_a_coarse_label_are_equally_likely() -> None:
    parts = Pachinko(20, 1000, alpha=1e-9, beta=1e9)(np.repeat(FINE, 10), np.repeat(COARSE, 10), 0)
    one = [part for part in parts if len(np.unique(np.repeat(COARSE, 10)[part])) == 1]
    counts = np.concatenate([np.bincount(np.repeat(FINE, 10)[part] % 5, minlength=5) for part in one])
    assert len(one) >= 10
    assert counts.mean() == 200 and counts.std() < 2 * np.sqrt(1000 * 0.2 * 0.8)


def test_coarse_labels_a_client_are_those_of_the_dirichlet_multinomial() -> None:
    """A coarse label is missing among m draws with the chance E[(1 - p)^m], p ~ Beta(alpha, 19 alpha)."""
    alpha = 0.1
    m = 100
    missing = exp(lgamma(19 * alpha + m) + lgamma(20 * alpha) - lgamma(20 * alpha + m) - lgamma(19 * alpha))
    labels = np.repeat(np.arange(100), 5000)
    parts = Pachinko(500, m, alpha)(labels, labels // 5, 0)
    coarse_counts = np.array([len(np.unique(labels[part] // 5)) for part in parts])
    assert coarse_counts.mean() == pytest.approx(20 * (1 - missing), abs=3 * coarse_counts.std() / np.sqrt(500))


def test_what_remains_is_renormalised() -> None:
    """Without a label the others of its coarse label share its weight; without a coarse label all others do."""
    theta = np.array([0.2, 0.5, 0.3])
    phi = np.array([0.1, 0.6, 0.3, 1.0, 0.25, 0.75])
    mixture = Mixture([np.array([0, 1, 2]), np.array([3]), np.array([4, 5])], np.log(theta) - 2**9, np.log(phi) + 2**9)
    q = mixture(np.full(6, 9))
    assert q == pytest.approx([0.02, 0.12, 0.06, 0.5, 0.075, 0.225], abs=1e-13)
    assert mixture(np.array([9, 0, 9, 9, 9, 9])) == pytest.approx([0.05, 0, 0.15, *q[3:]], abs=1e-13)
    assert mixture(np.array([9, 9, 9, 0, 9, 9])) == pytest.approx([*q[:3] / 0.5, 0, *q[4:] / 0.5], abs=1e-13)


def test_data_give_their_coarse_labels_or_say_that_they_have_none() -> None:
    y = torch.tensor(FINE)
    coarse = torch.tensor(COARSE)
    samples = Samples(torch.zeros(len(y), 1), y, coarse=coarse)
    assert samples[:3].coarse is not None and samples[:3].coarse.tolist() == COARSE[:3].tolist()
    data = Source(samples, None, 100, Transform()).partition(Pachinko(5, 10), seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(data.clients, Pachinko(5, 10)(FINE, COARSE, 3), strict=True))
    with pytest.raises(
        ValueError, match=r"^Pachinko\(clients=5, .*: it partitions by coarse, which these data do not have$"
    ):
        Source(Samples(samples.x, y), None, 100, Transform()).partition(Pachinko(5, 10))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Pachinko()(FINE[:1000], COARSE[:1000], 0), r"Pachinko.clients = 500: must be at most 10, for 1000"),
        (
            lambda: Pachinko(1, 1)(np.array([4, 7, 7]), np.array([0, 2, 1]), 0),
            r"Pachinko: samples of label 7 have the coarse labels 1 and 2: must be one",
        ),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)
