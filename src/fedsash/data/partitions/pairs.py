"""Two classes for each client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...settings.errors import check
from ...settings.limits import Count
from ...vector.arrays import Ints
from ...vector.randomness import Purpose, generator
from .common import NamedPartition, by_class, check_samples


@dataclass(frozen=True)
class ClassPairs(NamedPartition, name="class_pairs"):
    """Two classes for each client, samples of a class in equal parts ("#C = 2", Li et al. 2022; IMA on Digit-Five).

    Client `i` (from 0) holds class `i mod C` of `C` classes, and another one drawn at random. The samples of a class
    are divided evenly, at random, among the clients that hold it. Unlike with `Shards` no client holds a single class,
    and sizes differ, because some classes have more clients than others. With at least `C` clients every sample is used
    once. With fewer, classes without a client are not used.

    Raises `SettingError` if there are fewer than two classes, or if a client would hold no sample.
    """

    clients: Count
    """how many there are"""

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("ClassPairs", self.clients, len(labels))
        rng = generator(seed, Purpose.PARTITION)
        pools = by_class(labels, rng)
        classes = len(pools)
        check(classes >= 2, "ClassPairs: classes", classes, "there must be at least 2")
        first = np.arange(self.clients) % classes
        second = (first + rng.integers(1, classes, self.clients)) % classes
        hands: list[list[Ints]] = [[] for _ in range(self.clients)]
        for c, pool in enumerate(pools):
            holders = np.flatnonzero((first == c) | (second == c))
            for i, part in zip(holders, np.array_split(pool, max(1, len(holders))), strict=False):
                hands[i].append(part)
        clients = [np.sort(np.concatenate(hand)) for hand in hands]
        empty = next((i for i, client in enumerate(clients) if not client.size), None)
        check(empty is None, "ClassPairs.clients", self.clients, f"must be fewer: client {empty} would hold no sample")
        return clients
