"""Partitions of equal sizes: at random, and by shards of the sorted labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...basics.arrays import Ints
from ...basics.errors import check
from ...basics.randomness import Purpose, generator
from ...basics.typed import typed
from .common import check_client_count, check_samples


@dataclass(frozen=True)
@typed
class IID:
    """IID: equal parts of a random order of all samples.

    Sizes differ by at most one. Raises `ValueError` if there are more clients than samples.
    """

    clients: int

    def __post_init__(self) -> None:
        check_client_count("IID", self.clients)

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("IID", self.clients, len(labels))
        order = generator(seed, Purpose.PARTITION).permutation(len(labels))
        return [np.sort(part) for part in np.array_split(order, self.clients)]


@dataclass(frozen=True)
@typed
class Shards:
    """#C shards a client: samples sorted by label, cut into equal shards, dealt at random (McMahan et al. 2017).

    With `N` clients and `classes` shards each there are `N * classes` shards, whose sizes differ by at most one. A
    client sees at most `classes` classes where the borders of shards and classes coincide (CIFAR-10, 100 clients, 2
    shards), else a few more. The sort is stable: samples of one class keep their order.

    Raises `ValueError` if there are more shards than samples.
    """

    clients: int
    classes: int = 2

    def __post_init__(self) -> None:
        check_client_count("Shards", self.clients)
        check(self.classes >= 1, "Shards.classes", self.classes, "must be at least 1")

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("Shards", self.clients, len(labels), each=self.classes)
        shards = np.array_split(np.argsort(labels, kind="stable"), self.clients * self.classes)
        dealt = generator(seed, Purpose.PARTITION).permutation(len(shards)).reshape(self.clients, self.classes)
        return [np.sort(np.concatenate([shards[s] for s in hand])) for hand in dealt]
