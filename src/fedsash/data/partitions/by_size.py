"""Partitions that look at numbers of samples alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...settings.errors import check
from ...settings.limits import Concentration, Count
from ...vector.arrays import Ints
from ...vector.randomness import Purpose, generator
from .common import NamedPartition, check_samples


@dataclass(frozen=True)
class IID(NamedPartition, name="iid"):
    """IID: equal parts of a random order of all samples.

    Sizes differ by at most one. Raises `SettingError` if there are more clients than samples.
    """

    clients: Count
    """how many there are"""

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("IID", self.clients, len(labels))
        order = generator(seed, Purpose.PARTITION).permutation(len(labels))
        return [np.sort(part) for part in np.array_split(order, self.clients)]


@dataclass(frozen=True)
class Shards(NamedPartition, name="shards"):
    """#C shards for each client, at random, of samples sorted by label and cut equally (McMahan et al. 2017).

    The sizes of the `N * classes` shards differ by at most one. If the borders of shards and classes coincide
    (CIFAR-10, 100 clients, 2 shards), a client holds at most `classes` classes, otherwise a few more. The sort is
    stable: samples of one class keep their order.

    Raises `SettingError` if there are more shards than samples.
    """

    clients: Count
    """N, how many there are"""
    classes: Count = 2
    """how many shards each client gets"""

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        requirement = "must be one for each sample: partition these data by users, or with IID"
        check(labels.ndim == 1, "labels", list(labels.shape), requirement)
        requirement = f"must be at most {len(labels)}, the number of samples"
        check(self.classes <= len(labels), "Shards.classes", self.classes, requirement)
        check_samples("Shards", self.clients, len(labels), each=self.classes)
        count = self.clients * self.classes
        shards = np.array_split(np.argsort(labels, kind="stable"), count)
        order = generator(seed, Purpose.PARTITION).permutation(count)
        clients = []
        for shards_of_client in order.reshape(self.clients, self.classes):
            clients.append(np.sort(np.concatenate([shards[s] for s in shards_of_client])))
        return clients


@dataclass(frozen=True)
class Quantity(NamedPartition, name="quantity"):
    """Quantity skew: sizes from a Dirichlet over the clients, labels IID (after Li et al. 2022).

    Of `n` samples in random order each of `N` clients gets `min_size`. The others are divided in proportions
    `p ~ Dir(alpha * ones(N))`, so sizes are `min_size + p * (n - N * min_size)`, rounded. (The paper draws p again
    until every client has 10 samples, which never happens for small alpha.) Every sample is used once.

    Raises `SettingError` if `alpha` is out of range or there are fewer than `clients * min_size` samples.
    """

    clients: Count
    """N, how many there are"""
    alpha: Concentration
    """the concentration; the smaller, the more their sizes differ"""
    min_size: Count = 1
    """how many samples each client has at least"""

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("Quantity", self.clients, len(labels), each=self.min_size)
        rng = generator(seed, Purpose.PARTITION)
        order = rng.permutation(len(labels))
        p = rng.dirichlet(np.full(self.clients, self.alpha))
        free = len(labels) - self.clients * self.min_size
        ends = self.min_size * np.arange(1, self.clients) + (p.cumsum()[:-1] * free).astype(np.int64)
        return [np.sort(part) for part in np.split(order, ends)]
