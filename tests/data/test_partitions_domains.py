from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.data import (
    IID,
    ClassPairs,
    Dirichlet,
    DirichletClasses,
    DirichletReuse,
    Domains,
    Pachinko,
    Quantity,
    Samples,
    Shards,
    Source,
    Transform,
    Users,
)
from fedsash.lab.config import ConfigError, parse

DOMAIN = np.repeat([4, 0, 1, 3, 2], [800, 700, 600, 500, 400])
LABELS = np.random.default_rng(0).integers(0, 10, len(DOMAIN))
INNER = [IID(1), ClassPairs(1), Shards(1), Dirichlet(1, 0.1), DirichletClasses(1, 0.5), DirichletReuse(1, 0.1)]
seeds = st.integers(0, 2**40)


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array), st.integers(1, 8), seeds)
def test_each_domain_has_as_many_clients_and_shares_all_of_itself_among_them(
    domain: np.ndarray, k: int, seed: int
) -> None:
    labels = np.arange(len(domain)) % 3
    present, sizes = np.unique(domain, return_counts=True)
    if sizes.min() < k:
        first = present[sizes < k][0]
        line = rf"^Domains.inner = IID\(clients={k}\): domain {first}: IID.clients = {k}: must be at most"
        with pytest.raises(ValueError, match=line) as caught:
            Domains(k)(domain, labels, seed)
        assert "\n" not in str(caught.value)
        return
    parts = Domains(k)(domain, labels, seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(domain)))
    assert all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)
    homes = [np.unique(domain[part]) for part in parts]
    assert all(len(home) == 1 for home in homes)
    assert sorted(int(home[0]) for home in homes) == sorted(present.tolist() * k)
    for d in present:
        counts = [part.size for part, home in zip(parts, homes, strict=True) if home[0] == d]
        assert max(counts) - min(counts) <= 1
    assert same(parts, Domains(k)(domain, labels, seed))


@pytest.mark.parametrize("inner", INNER, ids=lambda rule: type(rule).__name__)
def test_inside_a_domain_the_inner_rule_holds(inner: Any) -> None:
    parts = Domains(10, inner)(DOMAIN, LABELS, 0)
    assert len(parts) == 50 and all(len(np.unique(DOMAIN[part])) == 1 for part in parts)
    if not isinstance(inner, DirichletReuse):
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(DOMAIN)))
    counts = np.array([len(np.unique(LABELS[part])) for part in parts])
    if isinstance(inner, ClassPairs):
        assert set(counts) == {2}
    if isinstance(inner, Shards):  # domains are no multiples: a shard may reach over a border of classes
        assert counts.max() <= 4
    if isinstance(inner, Dirichlet):
        assert counts.mean() < 3
    if isinstance(inner, IID):
        assert counts.mean() > 9
    assert not same(parts, Domains(10, inner)(DOMAIN, LABELS, 1))


def test_domains_of_the_same_labels_are_shared_out_differently() -> None:
    domain = np.repeat([0, 1], 1000)
    labels = np.tile(np.arange(1000) % 10, 2)
    parts = Domains(5, Dirichlet(1, 0.1))(domain, labels, 0)
    shares = [sorted(np.bincount(labels[p], minlength=10).tolist() for p in parts if domain[p[0]] == d) for d in (0, 1)]
    assert shares[0] != shares[1]


def test_client_numbers_are_permuted_over_domains() -> None:
    orders = [[int(DOMAIN[part[0]]) for part in Domains(20)(DOMAIN, LABELS, seed)] for seed in range(200)]
    assert all(np.bincount(order).tolist() == [20] * 5 for order in orders)
    first = np.bincount([order[0] for order in orders], minlength=5)
    assert first.min() > 20  # 40 each are expected, and 5.7 is the deviation


def test_an_experiment_names_an_inner_rule_without_its_clients() -> None:
    table = {"name": "domains", "clients_per_domain": 20, "inner": {"name": "dirichlet_classes", "alpha": 0.1}}
    experiment = parse({"partition": table})
    assert experiment.partition == Domains(20, DirichletClasses(20, 0.1))
    assert parse(experiment.table()) == experiment
    inner = experiment.table()["partition"]["inner"]
    assert inner == {"name": "dirichlet_classes", "clients": 20, "alpha": 0.1, "tries": 10_000}
    assert parse({"partition": {"name": "domains", "clients_per_domain": 3}}).partition == Domains(3, IID(3))


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({}, "partition.clients_per_domain is missing: must be an integer"),
        ({"clients_per_domain": 2, "inner": "iid"}, 'must be a table, [partition.inner] with name = "iid"'),
        ({"clients_per_domain": 2, "inner": {"name": "shard"}}, "did you mean shards?"),
        ({"clients_per_domain": 2, "inner": {"name": "shards", "clases": 1}}, "did you mean partition.inner.classes?"),
        (
            {"clients_per_domain": 2, "inner": {"name": "shards", "classes": 0}},
            "partition.inner.classes = 0: must be at",
        ),
        (
            {"clients_per_domain": 2, "inner": {"name": "iid", "clients": 3}},
            "partition.inner.clients = 3: must be clie",
        ),
        (
            {"clients_per_domain": 2, "inner": {"name": "users"}},
            "partition.inner = Users(min_samples=1, max_users=None",
        ),
    ],
)
def test_an_error_of_the_inner_rule_names_its_key(table: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"partition": {"name": "domains", **table}})
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_data_give_their_domains_or_say_that_they_have_none() -> None:
    samples = Samples(torch.zeros(len(LABELS), 1), torch.tensor(LABELS), torch.tensor(DOMAIN))
    data = Source(samples, None, 10, Transform()).partition(Domains(4, ClassPairs(4)), seed=7)
    assert same(list(data.clients), Domains(4, ClassPairs(4))(DOMAIN, LABELS, 7))
    with pytest.raises(ValueError, match="it partitions by domain, which these data do not have"):
        Source(Samples(samples.x, samples.y), None, 10, Transform()).partition(Domains(4))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Domains(5, IID(4)), r"Domains.inner.clients = 4: must be clients_per_domain, 5, or be left out"),
        (lambda: Domains(5, Users()), r"Domains.inner = Users.*must be a rule for `clients` that partitions by labels"),
        (lambda: Domains(5, Pachinko(5)), r"Domains.inner = Pachinko.*partitions by labels only"),
        (lambda: Domains(5, Domains(5)), r"Domains.inner = Domains.*partitions by labels only"),
        (
            lambda: Domains(20, Quantity(1, 1.0, 21))(DOMAIN, LABELS, 0),
            r"Domains.inner = Quantity\(clients=20, .*\): domain 2: Quantity.clients = 20: must be at most 19",
        ),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)
