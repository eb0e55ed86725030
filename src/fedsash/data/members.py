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
from .samples import Samples

_CLIENT_TEST = 3  # makes this draw independent of other draws of partitions and data sets


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
        arrays = [np.asarray(client).astype(np.int64, copy=False) for client in clients]
        sizes = np.array([len(array) for array in arrays], dtype=np.int64)
        return cls(_concatenated(arrays), sizes.cumsum())

    @property
    def sizes(self) -> Ints:
        """The number of samples of each client, `[N]`."""
        return np.diff(self.ends, prepend=0)

    @property
    def owners(self) -> Ints:
        """The client of each entry of `flat`."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def names(self, user: Ints, names: Sequence[str]) -> tuple[str, ...]:
        """A name for each client, that of its user; empty unless each client is another user.

        `user` `[n]` are the numbers of the users of all samples, `names` those of all users.
        """
        pairs = np.unique(self.owners * len(names) + user[self.flat])
        clients, users = np.divmod(pairs, len(names))
        one_user_each = len(self) == len(clients) == len(np.unique(clients))
        if not one_user_each or len(np.unique(users)) < len(users):
            return ()
        return tuple(names[i] for i in users.tolist())

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, client: int) -> Ints: ...
    @overload
    def __getitem__(self, client: slice) -> Members: ...
    def __getitem__(self, client: Any) -> Any:
        if isinstance(client, slice):
            return self.only(np.arange(len(self))[client])
        row = range(len(self))[index(client)]  # of -1 the last one; `IndexError` beyond the end
        start = 0
        if row > 0:
            start = self.ends[row - 1]
        return self.flat[start : self.ends[row]]

    def __iter__(self) -> Iterator[Ints]:
        for start, end in pairwise((0, *self.ends.tolist())):
            yield self.flat[start:end]

    def __repr__(self) -> str:
        return f"{len(self):,} items"

    def only(self, rows: Ints) -> Members:
        """The clients in some rows; none if there are no clients."""
        if len(self) == 0:
            return self
        return Members.of([self[row] for row in rows])

    def where(self, mask: NDArray[np.bool_]) -> Members:
        """The same clients with those entries of `flat` for which `mask` holds."""
        counts = np.concatenate([[0], mask.cumsum()])
        return Members(self.flat[mask], counts[self.ends])

    def hold_out(self, fraction: float, seed: int, numbers: Sequence[int]) -> tuple[Members, Members]:
        """What is left of each client's samples after a `fraction` of them is held out, and what is held out.

        `numbers` `[N]` are the clients' numbers in all draws. See `FederatedData.hold_out`.
        """
        check_fraction("evaluation.held_out", fraction)
        orders = []
        for number, samples in zip(numbers, self, strict=True):
            orders.append(generator(seed, Purpose.HELD_OUT, number).permutation(samples))
        is_held_out = np.zeros(self.flat.max(initial=0) + 1, dtype=np.bool_)
        for order in orders:
            count = int(fraction * len(order) + 1e-9)  # 0.29 * 100 is a little below 29
            is_held_out[order[:count]] = True
        # Clients that share samples may have lost all of theirs: each keeps one.
        for order in orders:
            if is_held_out[order].all():
                is_held_out[order[-1]] = False
        # A sample is held out for the first of the clients that share it.
        samples, first = np.unique(self.flat, return_index=True)
        entries = first[is_held_out[samples]]
        owners = self.owners[entries]
        sizes = np.bincount(owners, minlength=len(self))
        flat = self.flat[entries][np.argsort(owners, kind="stable")]
        return self.where(~is_held_out[self.flat]), Members(flat, sizes.cumsum())


def deal_test_samples(
    train: Samples, test: Samples, clients: Sequence[Ints], by: Sequence[str], seed: int
) -> list[Ints]:
    """Each client's indices into `test`, ascending: its test samples are distributed as its training samples are.

    Samples that agree in all fields that `by` names, such as `("y",)` or `("user",)`, are a group. A client that holds
    the share p of a group's training samples gets p * m of its m test samples, rounded up or down at random, so that
    the mean is p * m. A test sample belongs to one client, or to none if nobody trains on its group. Fields that are no
    single integers, such as labels of a regression, or that only one kind of samples has, such as users, are left out;
    without any the labels are the groups, and without integers as labels all samples are one group.
    """
    train_groups, test_groups = _groups(train, test, by)
    n = len(clients)
    members = Members.of(clients)
    # A pair of a group and a client that holds `counts` of its training samples, sorted by groups.
    pairs, counts = np.unique(train_groups[members.flat] * n + members.owners, return_counts=True)
    groups = np.arange(test_groups.max() + 2)
    pairs_of_groups = np.split(np.arange(len(pairs)), np.searchsorted(pairs, groups[1:] * n))
    tests_of_groups = np.split(np.argsort(test_groups, kind="stable"), np.bincount(test_groups).cumsum())
    rng = generator(seed, Purpose.PARTITION, _CLIENT_TEST)
    parts: list[list[Ints]] = [[] for _ in clients]
    for holders, tests in zip(pairs_of_groups, tests_of_groups, strict=True):
        if len(holders) == 0 or len(tests) == 0:
            continue
        holders = rng.permutation(holders)
        tests = rng.permutation(tests)
        total = counts[holders].sum()
        ends = (counts[holders].cumsum() * len(tests) + rng.integers(total)) // total
        for pair, part in zip(holders, np.split(tests, ends[:-1]), strict=True):
            parts[pairs[pair] % n].append(part)
    return [np.sort(_concatenated(client_parts)) for client_parts in parts]


def _groups(train: Samples, test: Samples, by: Sequence[str]) -> tuple[Ints, Ints]:
    """The number of each sample's group, for both kinds of samples."""
    columns = []
    for name in by:
        fields = [getattr(train, name), getattr(test, name)]
        if all(field is not None and field.dim() == 1 and not field.is_floating_point() for field in fields):
            columns.append(np.concatenate([field.cpu().numpy() for field in fields]))
    if not columns and "y" not in by:
        return _groups(train, test, ("y",))
    if not columns:
        return np.zeros(len(train), dtype=np.int64), np.zeros(len(test), dtype=np.int64)
    _, numbers = np.unique(np.stack(columns), axis=1, return_inverse=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    return numbers[: len(train)], numbers[len(train) :]


def _concatenated(arrays: Sequence[Ints]) -> Ints:
    """The arrays one after another, int64, even if there is none."""
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])
