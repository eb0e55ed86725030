"""Quantity skew: clients differ in the number of their samples only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...settings.limits import Concentration, Count
from ...vector.arrays import Ints
from ...vector.randomness import Purpose, generator
from .common import NamedPartition, check_samples


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
