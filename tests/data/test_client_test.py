"""Test samples of each client's own: given, or dealt out as the training samples are distributed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.data import Digits, Dirichlet, FederatedData, Users
from fedsash.data.samples import Samples
from fedsash.data.source import Source
from fedsash.data.transform import PLAIN
from support.worlds import data


def classes(counts: list[list[int]], test: list[int]) -> FederatedData:
    """Clients that hold `counts[i][c]` training samples of class c, and a test set with `test[c]` of them."""
    y = np.concatenate([np.repeat(range(len(test)), of_client) for of_client in counts])
    clients = np.split(np.arange(len(y)), np.cumsum([sum(of_client) for of_client in counts])[:-1])
    tested = np.repeat(range(len(test)), test)
    x = np.random.default_rng(0).normal(size=(len(y), 2)), np.random.default_rng(1).normal(size=(len(tested), 2))
    return FederatedData.from_arrays(x[0], y, clients, test=(x[1], tested), classes=len(test))


def dealt(data: FederatedData, seed: int = 0) -> np.ndarray[Any, Any]:
    """How many test samples of each class each client has, `[N, classes]`."""
    assert data.test is not None
    y = data.test.y.numpy()
    return np.array([np.bincount(y[indices], minlength=data.classes) for indices in data.deal_test(seed).client_test])


counts = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=n, max_size=n)
)


@settings(max_examples=60)
@given(counts=counts, test=st.lists(st.integers(0, 40), min_size=3, max_size=3).filter(any), seed=st.integers(0, 99))
def test_every_client_gets_its_share_of_each_class_up_to_rounding(
    counts: list[list[int]], test: list[int], seed: int
) -> None:
    world = classes(counts, test)
    counts_dealt = dealt(world, seed)
    train_counts = np.array(counts)
    shares = train_counts / np.maximum(train_counts.sum(0), 1) * np.array(test)
    assert (np.abs(counts_dealt - shares) < 1).all()
    expected = np.where(train_counts.any(0), test, 0)
    assert counts_dealt.sum(0).tolist() == expected.tolist(), "nothing is left over"
    each = np.concatenate(world.deal_test(seed).client_test)
    assert len(np.unique(each)) == len(each), "a test sample belongs to one client"


def test_what_is_rounded_is_drawn_so_that_no_client_is_preferred() -> None:
    world = classes([[1, 0], [2, 0], [4, 1]], [3, 2])
    mean = np.mean([dealt(world, seed) for seed in range(600)], axis=0)
    assert mean[:, 0] == pytest.approx([3 / 7, 6 / 7, 12 / 7], abs=0.08)
    assert mean[:, 1].tolist() == [0, 0, 2]


def test_it_is_a_pure_function_of_the_data_and_the_seed() -> None:
    world = classes([[5, 2], [3, 9]], [20, 20])
    one, again, other = (world.deal_test(seed).client_test for seed in (1, 1, 2))
    assert all(map(np.array_equal, one, again)) and not all(map(np.array_equal, one, other))


def test_users_keep_their_own_test_samples() -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, 5, 60)  # user 5 has no training sample
    tested = rng.integers(0, 6, 30)
    train = Samples(torch.randn(60, 2), torch.from_numpy(rng.integers(0, 3, 60)), user=torch.from_numpy(users))
    test = Samples(torch.randn(30, 2), torch.from_numpy(rng.integers(0, 3, 30)), user=torch.from_numpy(tested))
    world = Source(train, test, 3, PLAIN).partition(Users())
    for user, indices in enumerate(world.client_test):
        assert indices.tolist() == np.flatnonzero(tested == user).tolist()


def test_a_table_of_users_keeps_each_users_rows_for_testing() -> None:
    pandas = pytest.importorskip("pandas")
    from fedsash.data import Table

    rng = np.random.default_rng(0)
    owner = rng.integers(0, 4, 80)
    y = rng.integers(0, 2, 80)
    frame = pandas.DataFrame({"a": rng.normal(size=80), "label": y, "owner": owner})
    source = Table(user="owner", test=0.25).of(frame)
    world = source.partition(Users())
    assert source.test is not None and source.test.user is not None
    for client, indices in enumerate(world.client_test):
        assert indices.tolist() == torch.nonzero(source.test.user == client)[:, 0].tolist() and len(indices)


def test_numbers_that_are_no_classes_are_dealt_by_the_clients_sizes() -> None:
    from fedsash.tasks import Regression

    x = np.random.default_rng(0).normal(size=(40, 2))
    y = np.random.default_rng(1).normal(size=40)
    world = FederatedData.from_arrays(x, y, [range(10), range(10, 40)], test=(x, y), task=Regression())
    assert [len(indices) for indices in world.deal_test().client_test] == [10, 30]


def test_a_partition_deals_the_test_set_by_labels() -> None:
    world = Digits().load().partition(Dirichlet(clients=10, alpha=0.1), seed=1)
    assert world.test is not None and sum(map(len, world.client_test)) == len(world.test)
    train = world.counts() / world.counts().sum(1, keepdims=True)
    y = world.test.y.numpy()
    test = np.array([np.bincount(y[indices], minlength=10) / max(len(indices), 1) for indices in world.client_test])
    assert np.corrcoef(train.reshape(-1), test.reshape(-1))[0, 1] > 0.95


def test_where_only_training_samples_have_users_the_test_set_is_dealt_by_labels() -> None:
    world = classes([[6, 0], [0, 4]], [5, 5])
    users = torch.tensor([0] * 6 + [1] * 4)
    source = Source(replace(world.train, user=users), world.test, 2, PLAIN)
    assert [indices.tolist() for indices in source.partition(Users()).client_test] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_shard_has_its_clients_test_samples() -> None:
    world = data().deal_test()
    part = world.shard([1, 4])
    assert [indices.tolist() for indices in part.client_test] == [world.client_test[i].tolist() for i in (1, 4)]


@pytest.mark.parametrize(
    ("client_test", "line"),
    [
        (
            [[0], [1]],
            "FederatedData.client_test = '2 clients': must be indices into the test set for each of 3 clients",
        ),
        ([[0], [], [20]], r"FederatedData.client_test\[2\] = 20: must be indices from 0 to 19"),
        ([[0], [0.5], [1]], r"FederatedData.client_test\[1\] = .*: must be a list of indices"),
    ],
)
def test_other_indices_are_refused(client_test: list[Any], line: str) -> None:
    x = np.zeros((20, 2))
    y = np.arange(20) % 3
    with pytest.raises(ValueError, match=line):
        FederatedData.from_arrays(x, y, np.split(np.arange(20), [3, 9]), test=(x, y), client_test=client_test)


def test_without_a_test_set_there_is_nothing_to_deal_out() -> None:
    x = np.zeros((20, 2))
    y = np.arange(20) % 3
    with pytest.raises(ValueError, match=r"evaluation\.client_test = True: .*there is no test set"):
        FederatedData.from_arrays(x, y, [range(20)]).deal_test()
