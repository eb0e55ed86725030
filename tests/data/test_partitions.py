from __future__ import annotations

import re
import sys
from collections.abc import Callable
from math import exp, lgamma
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedsash.data import IID, PARTITIONS, Dirichlet, DirichletClasses, DirichletReuse, Flwr, Shards
from support.by_default import full

Ints = NDArray[np.int64]
Rule = Callable[[Ints, int], list[Ints]]

CIFAR10 = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
CIFAR100 = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))


def classes_held(labels: Ints, parts: list[Ints]) -> Ints:
    return np.array([len(np.unique(labels[part])) for part in parts])


def same(a: list[Ints], b: list[Ints]) -> bool:
    return len(a) == len(b) and all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


# Laws that hold for all inputs.

label_lists = (
    st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any).map(lambda n: np.repeat(np.arange(len(n)), n))
)
alphas = st.floats(1e-9, 1e9) | st.sampled_from([1e-9, 0.05, 1.0, 1e9])
seeds = st.integers(0, 2**40)


@given(label_lists, st.integers(1, 40), alphas | st.just(0.0), st.integers(1, 4), seeds)
def test_rules_without_reuse_use_every_sample_once_or_say_why_not(
    labels: Ints, clients: int, alpha: float, classes: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(labels)
    rules: list[Rule] = [IID(clients), Shards(clients, classes), Dirichlet(clients, alpha)]
    for rule in [*rules, *([DirichletClasses(clients, alpha, min_size=2, tries=5)] if alpha else [])]:
        try:
            parts = rule(labels, seed)
        except ValueError as error:
            assert len(str(error).splitlines()) == 1
            best = re.search(r"the best gave (\d+)", str(error))
            each = 2 if isinstance(rule, DirichletClasses) else classes
            assert int(best[1]) < 2 if best else clients * each > len(labels)
            continue
        assert len(parts) == clients
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
        assert all(part.size and part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
        sizes = np.array([part.size for part in parts])
        if isinstance(rule, DirichletClasses):
            assert sizes.min() >= 2
        elif isinstance(rule, Shards):
            assert sizes.max() - sizes.min() <= classes
        else:
            assert sizes.max() - sizes.min() <= 1
        assert same(parts, rule(labels, seed))


@given(label_lists, st.integers(1, 40), alphas, seeds)
def test_reuse_gives_everyone_the_same_number_of_samples(labels: Ints, clients: int, alpha: float, seed: int) -> None:
    if clients > len(labels):
        with pytest.raises(ValueError, match=f"DirichletReuse.clients = {clients}: must be at most {len(labels)}"):
            DirichletReuse(clients, alpha)(labels, seed)
        return
    parts = DirichletReuse(clients, alpha)(labels, seed)
    assert {part.size for part in parts} == {len(labels) // clients}
    assert all(part.min() >= 0 and part.max() < len(labels) for part in parts)
    assert all((np.diff(part) >= 0).all() for part in parts)
    for c in np.unique(labels):  # a class is used evenly: nothing a second time before everything once
        times = np.bincount(np.concatenate(parts), minlength=len(labels))[labels == c]
        assert times.max() - times.min() <= 1
    assert same(parts, DirichletReuse(clients, alpha)(labels, seed))


@pytest.mark.parametrize(
    "rule",
    [
        IID(100),
        Shards(100),
        Dirichlet(100, 0.1),
        Dirichlet(100, 0),
        DirichletClasses(100, 0.1),
        DirichletReuse(100, 0.1),
    ],
)
def test_another_seed_gives_another_partition(rule: Rule) -> None:
    assert not same(rule(CIFAR10, 0), rule(CIFAR10, 1))


@given(st.integers(1, 12), st.integers(1, 6), seeds)
@settings(max_examples=25)
def test_alpha_0_gives_one_class_each_where_sizes_divide(classes: int, clients_a_class: int, seed: int) -> None:
    labels = np.repeat(np.arange(classes), 3 * clients_a_class)
    parts = Dirichlet(classes * clients_a_class, 0)(labels, seed)
    assert (classes_held(labels, parts) == 1).all()


def test_labels_need_not_be_consecutive() -> None:
    labels = np.repeat([7, 7, 90, 90, 3, 3], 10)
    numbered = np.unique(labels, return_inverse=True)[1]
    for rule in (Dirichlet(4, 0.5), DirichletClasses(4, 0.5), DirichletReuse(4, 0.5), Shards(3)):
        assert all(same(rule(labels, seed), rule(numbered, seed)) for seed in range(5))


# Statistics: of the split files published by Caldarola et al. (2022), and of simulations of the rules.


@pytest.mark.parametrize(
    ("labels", "alpha", "published"),
    [
        full(CIFAR10, 0, 1),
        full(CIFAR10, 0.05, 1.32),
        (CIFAR10, 0.1, 1.54),
        full(CIFAR10, 0.2, 2.19),
        full(CIFAR10, 0.5, 3.57),
        full(CIFAR10, 1, 4.78),
        full(CIFAR10, 10, 9.28),
        full(CIFAR10, 100, 9.9),
        full(CIFAR100, 0, 1),
        (CIFAR100, 0.5, 5.13),
    ],
    ids=lambda value: f"cifar{len(set(value.tolist()))}" if isinstance(value, np.ndarray) else None,
)
def test_classes_a_client_in_a_published_file_are_those_of_a_likely_draw(
    labels: Ints, alpha: float, published: float
) -> None:
    """Within 3 deviations; were q renormalised when a class is used up, CIFAR-100's 5.13 would lie 8 away."""
    means = [classes_held(labels, Dirichlet(100, alpha)(labels, seed)).mean() for seed in range(12)]
    assert abs(np.mean(means) - published) <= 3 * np.std(means)


def test_classes_a_client_at_alpha_1000_are_those_of_the_dirichlet_multinomial_until_classes_are_used_up() -> None:
    """A class is missing among m draws with the chance E[(1 - p)^m], p ~ Beta(alpha / 100, 99 alpha / 100).

    That is 98.3 classes, and 95.8 with the last clients, for whom few classes are left. (The published file has 98.8,
    which a random split, 99.4, does not give either.)
    """
    missing = exp(lgamma(990 + 500) + lgamma(1000) - lgamma(1000 + 500) - lgamma(990))
    class_counts = np.array([classes_held(CIFAR100, Dirichlet(100, 1000)(CIFAR100, seed)) for seed in range(3)])
    assert class_counts[:, :80].mean() == pytest.approx(100 * (1 - missing), abs=0.2)
    assert class_counts[:, 80:].mean() < class_counts[:, :80].mean()


def test_alpha_0_on_cifar() -> None:
    parts = Dirichlet(100, 0)(CIFAR10, 0)
    assert np.bincount([CIFAR10[part[0]] for part in parts]).tolist() == [10] * 10
    assert (classes_held(CIFAR10, parts) == 1).all()
    assert sorted(CIFAR100[part[0]] for part in Dirichlet(100, 0)(CIFAR100, 0)) == list(range(100))


def test_the_label_prior_sets_the_mixture() -> None:
    labels = np.repeat([0, 1], [9000, 1000])
    shares = [(labels[part] == 1).mean() for part in Dirichlet(10, 1e6)(labels, 0)]
    assert shares == pytest.approx([0.1] * 10, abs=0.04)


def test_dirichlet_over_clients_is_unequal() -> None:
    parts = [DirichletClasses(100, 0.1)(CIFAR10, seed) for seed in range(4)]
    sizes = np.array([[part.size for part in split] for split in parts])
    assert sizes.min() >= 10
    assert 1500 < sizes.max() < 3500
    assert 300 < np.median(sizes) < 550
    assert np.mean([classes_held(CIFAR10, split) for split in parts]) == pytest.approx(4.2, abs=0.4)


def test_a_client_with_its_even_share_gets_no_further_class() -> None:
    labels = np.repeat(np.arange(10), 100)
    for part in DirichletClasses(10, 0.05, min_size=1)(labels, 3):
        counts = np.bincount(labels[part], minlength=10)
        before_last = part.size - counts[np.flatnonzero(counts)[-1]]
        assert before_last < 100


@pytest.mark.parametrize(("alpha", "used"), [(0.1, 0.885), (0.3, 0.922), (0.6, 0.944)])
def test_reuse_leaves_samples_unused(alpha: float, used: float) -> None:
    shares = [len(np.unique(np.concatenate(DirichletReuse(100, alpha)(CIFAR100, seed)))) / 50_000 for seed in range(3)]
    assert np.mean(shares) == pytest.approx(used, abs=0.015)


def test_reuse_at_alpha_one_tenth_gives_about_a_third_of_the_classes() -> None:
    assert classes_held(CIFAR100, DirichletReuse(100, 0.1)(CIFAR100, 0)).mean() == pytest.approx(34, abs=3)


def test_shards_on_cifar10_are_one_or_two_classes_of_consecutive_samples() -> None:
    parts = Shards(100, 2)(CIFAR10, 0)
    assert set(classes_held(CIFAR10, parts)) == {1, 2}
    shards = np.argsort(CIFAR10, kind="stable").reshape(200, 250)
    cut = {frozenset(shard.tolist()) for shard in shards}
    whole = [sum(shard <= frozenset(part.tolist()) for shard in cut) for part in parts[:10]]
    assert whole == [2] * 10


# Refusals.


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: IID(7)(np.zeros(6, int), 0), r"IID.clients = 7: must be at most 6, for 6 samples"),
        (
            lambda: Shards(4)(np.zeros(6, int), 0),
            r"Shards.clients = 4: must be at most 3, for 6 samples and at least 2",
        ),
        (lambda: Shards(2, 9)(np.zeros(6, int), 0), r"Shards.classes = 9: must be at most 6, the number of samples"),
        (lambda: Dirichlet(7, 1)(np.zeros(6, int), 0), r"Dirichlet.clients = 7: must be at most 6"),
        (lambda: DirichletClasses(2, 1, min_size=4)(np.zeros(6, int), 0), r"clients = 2: must be at most 1"),
        (
            lambda: DirichletClasses(100, 0.01, tries=20)(CIFAR10, 0),
            r"none of 20 draws gave each of 100 clients 10 samples, the best gave \d: lower min_size, raise alpha",
        ),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_client_may_need_every_sample_that_there_is() -> None:
    (only,) = DirichletClasses(1, 0.5, min_size=60)(CIFAR10[:60], 0)
    assert only.tolist() == list(range(60))


def test_every_rule_has_a_name_and_says_what_it_is() -> None:
    firsts = [(rule.__doc__ or "").splitlines()[0] for rule in PARTITIONS.values()]
    assert all(first.endswith(".") and len(first) < 110 for first in firsts)


# flwr-datasets.


def test_flwr_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(ImportError, match=r'pip install "fedsash\[partitions\]"'):
        Flwr(10, "IidPartitioner")(CIFAR10, 0)


@pytest.mark.parametrize(
    ("partitioner", "options"),
    [
        ("IidPartitioner", {}),
        ("DirichletPartitioner", {"alpha": 0.5}),
        ("PathologicalPartitioner", {"num_classes_per_partition": 2}),
        ("ShardPartitioner", {"num_shards_per_partition": 2}),
        ("LinearPartitioner", {}),
    ],
)
def test_flwr_partitioners_by_name(partitioner: str, options: dict[str, Any]) -> None:
    pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed")
    labels = CIFAR10[:2000]
    rule = Flwr(10, partitioner, options)
    parts = rule(labels, 3)
    used = np.sort(np.concatenate(parts))
    assert len(parts) == 10
    assert len(np.unique(used)) == len(used)
    if partitioner not in ("LinearPartitioner", "PathologicalPartitioner"):  # which leave some over
        assert len(used) == 2000
    assert same(parts, rule(labels, 3))
    assert not same(parts, rule(labels, 4))
    if partitioner == "PathologicalPartitioner":
        assert (classes_held(labels, parts) == 2).all()


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (Flwr(10, "Nope"), r"Flwr.partitioner = 'Nope': flwr-datasets has no such partitioner, only .*IidPartitioner"),
        (Flwr(10, "DirichletPartitioner"), r"DirichletPartitioner with {} failed: .*alpha"),
        (Flwr(10, "IidPartitioner", {"alpha": 1}), r"IidPartitioner with {'alpha': 1} failed: .*alpha"),
        (Flwr(7, "NaturalIdPartitioner"), r"Flwr.clients = 7: NaturalIdPartitioner makes 10 parts"),
        (Flwr(100, "DirichletPartitioner", {"alpha": 1e-3}), r"DirichletPartitioner with .* failed: .*attempts"),
    ],
)
def test_flwr_refusals_are_one_line(rule: Flwr, line: str) -> None:
    pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed")
    with pytest.raises(ValueError, match=line) as caught:
        rule(CIFAR10[:2000], 0)
    assert "\n" not in str(caught.value)
