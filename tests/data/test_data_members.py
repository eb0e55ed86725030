"""The indices of all clients in one array: they read as a list of arrays, and as a plain loop would make them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash import SettingError
from fedsash.data.arrays import of_clients
from fedsash.data.members import Members
from fedsash.vector.randomness import Purpose, generator

LISTS = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True), min_size=1, max_size=6)


@given(LISTS)
def test_it_reads_as_the_lists_that_it_is_made_of(lists: list[list[int]]) -> None:
    members = Members.of(lists)
    assert [indices.tolist() for indices in members] == lists == [members[i].tolist() for i in range(len(members))]
    assert members.sizes.tolist() == [len(indices) for indices in lists]
    assert [indices.tolist() for indices in members[1:]] == lists[1:] and members[-1].tolist() == lists[-1]
    assert [indices.tolist() for indices in members.only(np.array([len(lists) - 1, 0]))] == [lists[-1], lists[0]]
    assert members.owners.tolist() == [i for i, indices in enumerate(lists) for _ in indices]
    odd = [indices.tolist() for indices in members.where(members.flat % 2 == 1)]
    assert odd == [[index for index in indices if index % 2] for indices in lists]
    with pytest.raises(IndexError):
        members[len(lists)]


def held_out_one_by_one(lists: list[list[int]], fraction: float, seed: int) -> tuple[Any, Any]:
    """What `Members.hold_out` promises, client after client."""
    draws = [generator(seed, Purpose.HELD_OUT, i).permutation(indices) for i, indices in enumerate(lists)]
    taken = {int(index) for drawn in draws for index in drawn[: int(fraction * len(drawn))]}
    for drawn in draws:
        if taken.issuperset(drawn.tolist()):
            taken.discard(int(drawn[-1]))
    remaining = [[index for index in indices if index not in taken] for indices in lists]
    held_out = []
    for indices in lists:
        held_out.append(sorted(taken.intersection(indices)))
        taken.difference_update(indices)
    return remaining, held_out


@given(LISTS, st.sampled_from([0.1, 0.3, 0.5, 0.9]), st.integers(0, 3))
def test_what_is_held_out_is_what_a_loop_over_the_clients_holds_out(
    lists: list[list[int]], fraction: float, seed: int
) -> None:
    remaining, held_out = Members.of(lists).hold_out(fraction, seed, range(len(lists)))
    expected_remaining, expected_held_out = held_out_one_by_one(lists, fraction, seed)
    assert [indices.tolist() for indices in remaining] == expected_remaining
    assert [indices.tolist() for indices in held_out] == expected_held_out


def test_a_hundred_thousand_clients_are_sent_as_two_arrays() -> None:
    members = Members.of(np.arange(300_000).reshape(100_000, 3))
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(members, protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 2 and len(content) < 1000


@pytest.mark.parametrize(
    ("clients", "line"),
    [
        ([[0, 1], [2, 9]], r"^FederatedData.clients\[1\] = 9: must be indices from 0 to 8$"),
        ([[0, 1], [], [-1]], r"^FederatedData.clients\[2\] = -1: must be indices from 0 to 8$"),
        ([[0], [0.5]], r"^FederatedData.clients\[1\] = 'float64 \[1\]': must be a list of indices$"),
        (Members.of([[0], [2], [11]]), r"^FederatedData.clients\[2\] = 11: must be indices from 0 to 8$"),
    ],
)
def test_a_wrong_index_names_its_client(clients: Any, line: str) -> None:
    with pytest.raises(SettingError, match=line):
        of_clients(clients, "clients", 9)
