"""Weighted sums of vectors of many clients, in a fixed order and in fixed pieces."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import numpy as np
import torch

from ..basics.arrays import Floats, Ints, Vectors, equal_parts


class Sums:
    """The sums over clients of `weights` `[s]` times their vectors, by name; names in `uniform` have equal weights.

    Clients are added in the round's order. Memory is O(model) for any number of clients.

    With `pieces` P > 1 a round is cut into P fixed pieces of successive clients. Each piece is summed by itself, in
    order, and then added to the pieces before it. So the bytes depend on P, but not on where or when a piece is summed:
    `merge` takes a piece that was summed elsewhere.
    """

    def __init__(self, weights: Floats, uniform: Collection[str] = (), pieces: int = 1) -> None:
        self._weights = weights
        self._equal = equal_weights(len(weights))
        self._uniform = uniform
        self._ends = equal_parts(len(weights), pieces)
        self._piece = 0
        self._current: Vectors = {}
        self._finished: Vectors = {}
        self._added = False

    def add(self, vectors: Vectors, places: Ints) -> None:
        """Add the vectors `[b, ...]` of the clients at these ascending places, which come after all those before."""
        if len(self._ends) == 1:
            self._add_rows(vectors, places)
            return
        owner = np.searchsorted(self._ends, places, side="right")
        bounds = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(places)]
        for first, end in pairwise(bounds):
            if owner[first] != self._piece:
                self._finish()
                self._piece = int(owner[first])
            self._add_rows({name: rows[first:end] for name, rows in vectors.items()}, places[first:end])
            if places[end - 1] == self._ends[self._piece] - 1:  # so that a mean needs no new memory
                self._finish()

    def merge(self, sums: Vectors, places: Ints) -> None:
        """Add the sums of a piece; `places` are those of all its clients, also of those that are not in its sums.

        Raises `RuntimeError` if the places are not those of a piece.
        """
        piece = int(np.searchsorted(self._ends, places[0], side="right"))
        first = self._ends[piece - 1] if piece else 0
        if not np.array_equal(places, np.arange(first, self._ends[piece])):
            raise RuntimeError(
                f"a partial sum over the places {places.tolist()} is not one of the round's {len(self._ends)} pieces"
            )
        self._finish()
        self._current = dict(sums)
        self._finish()

    def totals(self) -> Vectors:
        """The sums over all clients so far; empty if there are none."""
        if not self._finished:
            return dict(self._current)
        last = {name: self._finished[name] + total for name, total in self._current.items()}
        return self._finished | last

    def mean(self, places: list[int]) -> Vectors:
        """The weighted means, if the sums are over the clients at these places: their weights are scaled up to 1."""
        totals = self.totals()
        if len(places) == len(self._weights):
            return totals
        return {name: total / _sum(self._weights_of(name)[places]) for name, total in totals.items()}

    def _finish(self) -> None:
        """Add the sums of the present piece to those of the pieces before it."""
        if not self._finished:
            self._finished = self._current
        elif self._current:
            for name, total in self._current.items():  # in place, but not in an answer's memory: new memory is slow
                before = self._finished[name]
                self._finished[name] = torch.add(before, total, out=before if self._added else None)
            self._added = True
        self._current = {}

    def _add_rows(self, vectors: Vectors, places: Ints) -> None:
        for name, rows in vectors.items():
            weights = self._weights_of(name)[places]
            before = self._current.get(name)
            if len(rows) == 1:  # zero is added to the first one, too, without being written: so no sum is -0.0
                total = rows.new_zeros(()) if before is None else before
                self._current[name] = torch.add(total, rows[0], alpha=float(weights[0]), out=before)
            else:
                flat = rows.reshape(len(rows), -1)
                mixed = (torch.from_numpy(weights).to(rows) @ flat).view(rows.shape[1:])
                self._current[name] = mixed.add_(0.0 if before is None else before)

    def _weights_of(self, name: str) -> Floats:
        return self._equal if name in self._uniform else self._weights


def equal_weights(count: int) -> Floats:
    """Equal weights `[count]` with the sum 1."""
    return np.full(count, 1 / max(count, 1))


def pieces_of(count: int, pieces: int) -> list[Ints]:
    """The places of each of the fixed pieces into which a round of `count` clients is cut."""
    return np.split(np.arange(count), equal_parts(count, pieces)[:-1])


def _sum(values: Floats) -> float:
    return float(torch.from_numpy(values).sum())
