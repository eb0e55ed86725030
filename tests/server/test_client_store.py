"""Where client state is: rows, handles and versions give clients the same state, and take over what is accepted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.client.store import ClientStore, Handle, ServerCopy, StateHandles, StateRows, StateVersions
from fedsash.vector.arrays import Objects, Vectors

CLIENTS = 5
CPU = torch.device("cpu")
OWN = {"c": torch.arange(3.0, dtype=torch.float64), "n": torch.tensor(7)}


def store(held: bool) -> ClientStore:
    """The start of clients that remember two values."""
    return ClientStore.start(OWN, torch.zeros(CLIENTS, dtype=torch.int64), CLIENTS, None, held)


def accept(to: ClientStore, ids: list[int], rows: Vectors, round: int) -> None:
    """Accept new rows, as handles where the store has handles."""
    answer: Vectors | Objects = rows
    if to.handles is not None:
        answer = np.empty(len(ids), dtype=object)
        answer[:] = [behind({name: value[i] for name, value in rows.items()}) for i in range(len(ids))]
    to.accept(np.array(ids), [(np.array(ids), answer)], round)


def behind(value: Vectors) -> Handle:
    return ServerCopy(lambda: value)


def rounds(to: ClientStore) -> None:
    """Three rounds with other clients in each."""
    draws = torch.Generator().manual_seed(0)
    for round, ids in enumerate([[3, 0], [1], [0, 4, 1]], 1):
        new: dict[str, Tensor] = {"c": torch.rand(len(ids), 3, dtype=torch.float64, generator=draws)}
        accept(to, ids, new | {"n": torch.full((len(ids),), round)}, round)


def test_handles_are_rows_that_are_elsewhere() -> None:
    here, there = store(False), store(True)
    rounds(here)
    rounds(there)
    assert here.last.tolist() == there.last.tolist() == [3, 3, 0, 1, 3]
    assert here.files() == there.files() and len(here.files()) == 4
    ids = np.array([4, 2, 0])
    asked, elsewhere = here.recall(ids, CPU), there.recall(ids, CPU)
    assert isinstance(asked, StateRows) and isinstance(elsewhere, StateHandles) and elsewhere.own == {}
    assert here.gathered() is here and asked.gathered() is asked
    for ticket in [elsewhere.gathered(), there.gathered().recall(ids, CPU)]:
        assert all(torch.equal(ticket.own[name], rows) for name, rows in asked.own.items())
    for places in (np.array([2, 0]), slice(1, 3)):
        right = asked.only(places).own
        assert all(torch.equal(right[name], rows[places]) for name, rows in asked.own.items())
        assert all(torch.equal(rows, right[name]) for name, rows in elsewhere.only(places).gathered().own.items())


def test_a_round_in_which_rows_are_accepted_does_not_change_what_was_asked() -> None:
    here = store(False)
    asked = here.recall(np.array([0, 1]), CPU)
    rounds(here)
    assert torch.equal(asked.own["c"], OWN["c"].expand(2, -1))


@pytest.mark.parametrize("held", [False, True])
def test_what_is_saved_is_loaded(held: bool, tmp_path: Path) -> None:
    one, other = store(held), store(held)
    rounds(one)
    files = {file: {name: value.clone() for name, value in read().items()} for file, read in one.saved().items()}
    other.last.copy_(one.last)
    other.load(files.__getitem__)
    for client in range(CLIENTS):
        right = one.of_client(client)
        assert all(torch.equal(value, right[name]) for name, value in other.of_client(client).items())


def test_clients_that_keep_their_state_are_told_the_version_that_counts() -> None:
    lineage = (0, "one"), (3, "one.2"), (5, "fork")
    kept = ClientStore({}, torch.zeros(CLIENTS, dtype=torch.int64), oldest=2, lineage=lineage)
    kept.accept(np.array([3, 1]), [], 6)
    asked = kept.recall(np.array([1, 2, 3]), CPU)
    assert isinstance(asked, StateVersions)
    assert asked.last.tolist() == [6, 0, 6] and asked.only(np.array([1])).last.tolist() == [0]
    assert asked.oldest == 2
    assert [asked.maker(version) for version in (6, 5, 3, 0)] == [("fork", 1), ("one", 2), ("one", 1), ("", 1)]
    kept.accept(np.array([1]), [], 7)
    assert asked.last.tolist() == [6, 0, 6]


def test_clients_that_remember_nothing_have_empty_rows() -> None:
    nothing = ClientStore({}, torch.zeros(0, dtype=torch.int64))
    nothing.accept(np.array([3]), [], 1)
    asked = nothing.recall(np.array([3]), CPU)
    assert isinstance(asked, StateRows) and asked.own == {} and nothing.files() == {}
