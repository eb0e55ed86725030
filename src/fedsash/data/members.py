"""Which samples belong to which client: one array for all clients, however many they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import index
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..settings.errors import check_fraction
from ..vector.arrays import Ints
from ..vector.randomness import Purpose, generator


class Members(Sequence[Ints]):
    """The indices of the samples of N clients: those of client i end at `ends[i]` in the array `flat` of all of them.

    It reads as a list of N arrays, and takes the memory of two.
    """

    def __init__(self, flat: Ints, ends: Ints) -> None:
        self.flat = flat
        self.ends = ends

    @classmethod
    def of(cls, clients: Sequence[Any]) -> Members:
        """The members of clients that are given as one array of indices each."""
        if isinstance(clients, Members):
            return clients
        each = [np.asarray(client).astype(np.int64, copy=False) for client in clients]
        sizes = np.array([len(client) for client in each], dtype=np.int64)
        return cls(np.concatenate([*each, np.empty(0, dtype=np.int64)]), sizes.cumsum())

    @property
    def sizes(self) -> Ints:
        """The number of samples of each client, `[N]`."""
        return np.diff(self.ends, prepend=0)

    @property
    def owners(self) -> Ints:
        """The client of each entry of `flat`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def names(self, user: Ints, names: Sequence[str]) -> tuple[str, ...]:
        """The names of the users of all samples, a name for each client; empty unless each client is another user."""
        clients, users = np.divmod(np.unique(self.owners * len(names) + user[self.flat]), len(names))
        each = len(self) == len(clients) == len(np.unique(clients)) == len(np.unique(users))
        return tuple(names[i] for i in users.tolist()) if each else ()

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, client: int) -> Ints: ...
    @overload
    def __getitem__(self, client: slice) -> Members: ...
    def __getitem__(self, client: Any) -> Any:
        rows = range(len(self))[client if isinstance(client, slice) else index(client)]
        if isinstance(rows, range):
            return self.only(np.array(rows, dtype=np.int64))
        return self.flat[self.ends[rows - 1] if rows else 0 : self.ends[rows]]

    def __iter__(self) -> Iterator[Ints]:
        return (self.flat[start:end] for start, end in pairwise((0, *self.ends.tolist())))

    def __repr__(self) -> str:
        return f"{len(self):,} items"

    def only(self, rows: Ints) -> Members:
        """The clients in some rows; nobody if there is nobody."""
        return Members.of([self[row] for row in rows]) if len(self) else self

    def where(self, mask: NDArray[np.bool_]) -> Members:
        """The same clients with those entries of `flat` for which `mask` holds."""
        return Members(self.flat[mask], np.concatenate([[0], mask.cumsum()])[self.ends])

    def hold_out(self, fraction: float, seed: int, numbers: Sequence[int]) -> tuple[Members, Members]:
        """What is left of each client's samples after a `fraction` of them is held out, and what is held out.

        `numbers` `[N]` are the clients' numbers in all draws. See `FederatedData.hold_out`.
        """
        check_fraction("evaluation.held_out", fraction)
        drawn = [generator(seed, Purpose.HELD_OUT, n).permutation(own) for n, own in zip(numbers, self, strict=True)]
        taken = np.zeros(self.flat.max(initial=0) + 1, dtype=np.bool_)
        for own in drawn:
            taken[own[: int(fraction * len(own) + 1e-9)]] = True  # 0.29 * 100 is a little below 29
        for own in drawn:
            if taken[own].all():
                taken[own[-1]] = False
        samples, first = np.unique(self.flat, return_index=True)
        held = first[taken[samples]]
        owner = self.owners[held]
        sizes = np.bincount(owner, minlength=len(self))
        kept = self.flat[held][np.argsort(owner, kind="stable")]
        return self.where(~taken[self.flat]), Members(kept, sizes.cumsum())
