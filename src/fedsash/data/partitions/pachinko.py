"""The Pachinko allocation: a partition by coarse labels and labels (CIFAR-100)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...settings.errors import DataError
from ...settings.limits import Concentration, Count
from ...vector.arrays import Floats, Ints
from ...vector.randomness import Purpose, generator
from .common import NamedPartition, by_class, check_samples, fill


@dataclass(frozen=True)
class Pachinko(NamedPartition, name="pachinko"):
    """Pachinko allocation: Dirichlet over coarse labels and over the labels of each (Reddi et al. 2021; WiMA).

    Labels are the leaves of a tree, root -> coarse labels -> labels. Client `i` draws

        theta ~ Dir(alpha) over the coarse labels,    phi_c ~ Dir(beta) over the labels of each coarse label c,

    and for each of its samples a coarse label c from theta and a label from `phi_c`, without replacement. A label that
    is used up is removed from the tree, and so is a coarse label without labels. Then `phi_c` or theta is renormalised.
    All clients have the same number of samples; the remaining samples are not used.

    It needs each sample's coarse label. Raises `SettingError` if alpha or beta is out of range or there are fewer than
    `clients * samples` samples, and `DataError` if samples of one label have several coarse labels.
    """

    clients: Count = 500
    """how many there are"""
    samples: Count = 100
    """how many each of them has"""
    alpha: Concentration = 0.1
    """the concentration over coarse labels"""
    beta: Concentration = 10.0
    """the concentration over the labels of each coarse label"""
    by: ClassVar[tuple[str, ...]] = ("y", "coarse")

    def __call__(self, labels: Ints, coarse: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("Pachinko", self.clients, len(labels), each=self.samples)
        rng = generator(seed, Purpose.PARTITION)
        pools = by_class(labels, rng)
        used = np.zeros(len(pools), dtype=np.int64)
        tree = _tree(labels, coarse)
        clients = []
        for _ in range(self.clients):
            mixture = Mixture(tree, _log_gamma(self.alpha, len(tree), rng), _log_gamma(self.beta, len(pools), rng))
            clients.append(fill(pools, used, self.samples, mixture, rng))
        return clients


@dataclass(frozen=True, eq=False)
class Mixture:
    """A client's mixture of labels, from the logarithms of unnormalised theta `[coarse]` and phi `[C]`."""

    tree: list[Ints]
    theta: Floats
    phi: Floats

    def __call__(self, left: Ints) -> Floats:
        """`q[y] = theta[c] * phi_c[y]` with c the coarse label of y; 0 for labels without samples `left`, `[C]`."""
        branches = [(c, leaves[left[leaves] > 0]) for c, leaves in enumerate(self.tree) if left[leaves].any()]
        theta = _normalised(self.theta[[c for c, _ in branches]])
        q = np.zeros(len(left))
        for share, (_, leaves) in zip(theta, branches, strict=True):
            q[leaves] = share * _normalised(self.phi[leaves])
        return q


def _tree(labels: Ints, coarse: Ints) -> list[Ints]:
    """For each coarse label that occurs, its labels, as positions among the labels that occur."""
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    parent = coarse[first]
    odd = np.flatnonzero(coarse != parent[place])
    if odd.size:
        y = labels[odd[0]]
        both = sorted({int(coarse[odd[0]]), int(parent[place[odd[0]]])})
        raise DataError(f"Pachinko: samples of label {y} have the coarse labels {both[0]} and {both[1]}: must be one")
    return [np.flatnonzero(parent == c) for c in np.unique(parent)]


def _log_gamma(alpha: float, size: int, rng: np.random.Generator) -> Floats:
    """Logarithms of gamma draws, `[size]`. Any subset of the draws, normalised, is a draw from Dir(alpha).

    G(alpha) has the distribution of G(alpha + 1) * U**(1 / alpha) with U uniform. The logarithm is finite even if the
    draw itself would underflow.
    """
    draws: Floats = np.log(rng.standard_gamma(alpha + 1, size)) + np.log1p(-rng.random(size)) / alpha
    return draws


def _normalised(logs: Floats) -> Floats:
    weights = np.exp(logs - logs.max())
    shares: Floats = weights / weights.sum()
    return shares
