from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.data import Samples, Source, Transform, Users
from fedsash.lab.config import parse

seeds = st.integers(0, 2**40)
users = st.lists(st.sampled_from([0, 1, 2, 5, 40, 900]), min_size=1, max_size=60).map(np.array)


@given(users, st.integers(1, 12), st.none() | st.integers(1, 8), seeds)
def test_a_client_is_all_of_one_user_in_the_order_of_their_numbers(
    user: np.ndarray, min_samples: int, max_users: int | None, seed: int
) -> None:
    names, sizes = np.unique(user, return_counts=True)
    rule = Users(min_samples, max_users)
    if sizes.max() < min_samples:
        with pytest.raises(ValueError, match=f"^Users.min_samples = {min_samples}: must be at most {sizes.max()}, "):
            rule(user, seed)
        return
    parts = rule(user, seed)
    kept = [int(user[part[0]]) for part in parts]
    assert kept == sorted(set(kept)) and set(kept) <= set(names[sizes >= min_samples].tolist())
    assert len(kept) == min(max_users or len(user), (sizes >= min_samples).sum())
    assert all(np.array_equal(part, np.flatnonzero(user == u)) for part, u in zip(parts, kept, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(parts, rule(user, seed), strict=True))


@given(users, st.integers(1, 6), st.integers(1, 6), seeds)
def test_fewer_users_are_some_of_more_users(user: np.ndarray, few: int, more: int, seed: int) -> None:
    def chosen(count: int) -> set[int]:
        return {int(user[part[0]]) for part in Users(max_users=count)(user, seed)}

    assert chosen(min(few, more)) <= chosen(max(few, more))


def test_another_seed_chooses_other_users() -> None:
    user = np.repeat(np.arange(500), 3)
    assert [part[0] for part in Users(max_users=20)(user, 0)] != [part[0] for part in Users(max_users=20)(user, 1)]


def test_an_experiment_names_users_and_data_without_users_say_so() -> None:
    rule = parse({"partition": {"name": "users", "min_samples": 2}}).partition
    assert rule == Users(2)
    user = torch.tensor([3, 1, 3, 1, 1, 2])
    samples = Samples(torch.zeros(6, 1), torch.arange(6), user=user)
    data = Source(samples, None, 6, Transform()).partition(rule)
    assert [client.tolist() for client in data.clients] == [[1, 3, 4], [0, 2]]
    with pytest.raises(ValueError, match=r"it partitions by user, which these data do not have"):
        parse({"partition": {"name": "users"}}).federated_data()


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: Users(4)(np.array([1, 1, 2]), 0),
            r"Users.min_samples = 4: must be at most 2, the most that a user has",
        ),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(make: Callable[[], Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)
