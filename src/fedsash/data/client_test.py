"""Test samples of each client's own: the test set, dealt out as the training samples are distributed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..vector.arrays import Ints
from ..vector.randomness import Purpose, generator
from .members import Members
from .samples import Samples

_CLIENT_TEST = 3  # makes this draw independent of other draws of partitions and data sets


def dealt(train: Samples, test: Samples, clients: Sequence[Ints], by: Sequence[str], seed: int) -> list[Ints]:
    """Each client's indices into `test`, ascending: its test samples are distributed as its training samples are.

    Samples that agree in all fields that `by` names, such as `("y",)` or `("user",)`, are a group. A client that holds
    the share p of a group's training samples gets p * m of its m test samples, rounded up or down at random, so that
    the mean is p * m. A test sample belongs to one client, or to none if nobody trains on its group. Fields that are no
    single integers, such as labels of a regression, are left out; without any, all samples are one group.
    """
    of_train, of_test = _groups(train, test, by)
    groups = np.arange(of_test.max() + 2)
    n = len(clients)
    held = Members.of(clients)
    pairs, counts = np.unique(of_train[held.flat] * n + held.owners, return_counts=True)
    holders = np.split(np.arange(len(pairs)), np.searchsorted(pairs, groups[1:] * n))
    members = np.split(np.argsort(of_test, kind="stable"), np.bincount(of_test).cumsum())
    rng = generator(seed, Purpose.PARTITION, _CLIENT_TEST)
    dealt_out: list[list[Ints]] = [[] for _ in clients]
    for holding, tests in zip(holders, members, strict=True):
        if not len(holding) or not len(tests):
            continue
        holding = rng.permutation(holding)
        tests = rng.permutation(tests)
        whole = counts[holding].sum()
        ends = (counts[holding].cumsum() * len(tests) + rng.integers(whole)) // whole
        for pair, own in zip(holding, np.split(tests, ends[:-1]), strict=True):
            dealt_out[pairs[pair] % n].append(own)
    return [np.sort(np.concatenate([np.empty(0, dtype=np.int64), *own])) for own in dealt_out]


def _groups(train: Samples, test: Samples, by: Sequence[str]) -> tuple[Ints, Ints]:
    """The number of each sample's group, for both kinds of samples."""
    columns = []
    for name in by:
        both = [getattr(samples, name) for samples in (train, test)]
        if all(field is not None and field.dim() == 1 and not field.is_floating_point() for field in both):
            columns.append(np.concatenate([field.cpu().numpy() for field in both]))
    if not columns:
        return np.zeros(len(train), dtype=np.int64), np.zeros(len(test), dtype=np.int64)
    _, numbers = np.unique(np.stack(columns), axis=1, return_inverse=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    return numbers[: len(train)], numbers[len(train) :]
