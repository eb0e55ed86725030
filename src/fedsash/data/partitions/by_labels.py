"""Partitions by the samples' labels: pairs of classes, Dirichlet draws, and the Pachinko allocation.

With CIFAR-10, 100 clients and alpha = 0.1 a client holds on average 1.5 classes by `Dirichlet`, 4 by `DirichletClasses`
and 5 by `DirichletReuse`. The concentration of each of `C` classes is `alpha / C` in `Dirichlet`, else `alpha`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from ...settings.errors import DataError, check
from ...settings.limits import Concentration, Count, Remark, Strength
from ...vector.arrays import Floats, Ints
from ...vector.randomness import Purpose, generator
from .common import NamedPartition, by_class, check_samples, equal_sizes, fill

log = logging.getLogger("fedsash")

SILENT = 3.0
"""After so many seconds a line says that a partition is still being drawn."""


@dataclass(frozen=True)
class Dirichlet(NamedPartition, name="dirichlet"):
    """Dirichlet per client by the label prior, equal sizes (Hsu et al. 2019; WiMA).

    Client `i` draws its mixture of labels `q_i ~ Dir(alpha * prior)`, where `prior` `[C]` are the classes' frequencies.
    The labels of its samples are drawn from `q_i`, without replacement. When a class is used up, `q_i` is drawn again
    over the remaining classes. With CIFAR-100 and alpha = 0.5, clients then hold 5.0 classes on average; in the split
    file published by Caldarola et al. (2022) it is 5.1. If `q_i` were renormalised instead, it would be 3.8. Every
    sample is used once. Sizes differ by at most one.

    `alpha = 0` is the limit: `q_i` is a single class, drawn by the prior. Then each client holds one class if class
    sizes are multiples of a client's size. Otherwise a client that uses up a class continues with another one.

    Raises `SettingError` if `alpha` is out of range or there are more clients than samples.
    """

    clients: Count
    """how many there are"""
    alpha: Strength
    """the concentration; the smaller, the fewer classes a client holds"""

    def __post_init__(self) -> None:
        check(self.alpha == 0 or self.alpha >= 1e-9, "Dirichlet.alpha", self.alpha, "must be 0, or at least 1e-9")

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        check_samples("Dirichlet", self.clients, len(labels))
        rng = generator(seed, Purpose.PARTITION)
        pools = by_class(labels, rng)
        prior = np.array([len(pool) for pool in pools]) / len(labels)
        used = np.zeros(len(pools), dtype=np.int64)
        sizes = equal_sizes(len(labels), self.clients)

        def mixture(left: Ints) -> Floats:
            return self._mixture(np.where(left > 0, prior, 0), rng)

        return [fill(pools, used, size, mixture, rng) for size in sizes]

    def _mixture(self, prior: Floats, rng: np.random.Generator) -> Floats:
        """`q ~ Dir(alpha * prior)` over the classes whose prior is not 0. For alpha = 0: the limit, a single class."""
        q = np.zeros_like(prior)
        if self.alpha == 0:
            q[rng.choice(len(q), p=prior / prior.sum())] = 1
        else:
            has_samples = prior > 0
            q[has_samples] = rng.dirichlet(self.alpha * prior[has_samples])
        return q


@dataclass(frozen=True)
class DirichletClasses(NamedPartition, name="dirichlet_classes"):
    """Dirichlet per class over the clients, unequal sizes ("hetero-dir", Yurochkin et al. 2019; IMA).

    Each class is divided among the clients in proportions `p ~ Dir(alpha * ones(N))`. Clients that already hold 1/N of
    all samples are left out. (A Dirichlet without some components, renormalised, is a Dirichlet over the others, and is
    drawn as one.) All classes are drawn again until every client has `min_size` samples. Every sample is used once.

    Raises `SettingError` if `alpha` is out of range or there are fewer than `clients * min_size` samples, and
    `DataError` if none of `tries` draws gives every client enough.
    """

    clients: Count
    """N, how many there are"""
    alpha: Concentration
    """the concentration; the smaller, the fewer clients hold a class"""
    min_size: Annotated[int, Interval(ge=1), Remark(" (leave it out for the number of classes)")] | None = None
    """how many samples every client has at least; left out: as many as there are classes"""
    tries: Annotated[int, Interval(ge=1, le=1_000_000)] = 10_000
    """how often all classes are drawn at most; a small `alpha` can need tens of thousands"""

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        rng = generator(seed, Purpose.PARTITION)
        pools = by_class(labels, rng)
        min_size = len(pools) if self.min_size is None else self.min_size
        check_samples("DirichletClasses", self.clients, len(labels), each=min_size)
        cuts = self._cuts(np.array([len(pool) for pool in pools]), min_size, rng)
        parts: list[list[Ints]] = [[] for _ in range(self.clients)]
        for pool, cut in zip(pools, cuts, strict=True):
            for i, part in enumerate(np.split(pool, cut)):
                parts[i].append(part)
        return [np.sort(np.concatenate(client_parts)) for client_parts in parts]

    def _cuts(self, sizes: Ints, min_size: int, rng: np.random.Generator) -> Ints:
        """The positions at which each class is cut, `[C, N - 1]`: the first draw that gives all clients `min_size`."""
        samples = sizes.sum()
        most = 0  # of the samples of the smallest client, over all draws
        start = time.monotonic()
        warned = False
        for number in range(self.tries):
            if not warned and time.monotonic() - start > SILENT:
                warned = True
                line = "%d of %d draws gave no partition in which each of %d clients has %d samples; it goes on"
                log.warning(f"DirichletClasses: {line}", number, self.tries, self.clients, min_size)
            client_sizes = np.zeros(self.clients, dtype=np.int64)
            cuts = np.empty((len(sizes), self.clients - 1), dtype=np.int64)
            for c, size in enumerate(sizes):
                p = np.zeros(self.clients)
                open_to_more = client_sizes * self.clients < samples
                p[open_to_more] = rng.dirichlet(np.full(open_to_more.sum(), self.alpha))
                cuts[c] = p.cumsum()[:-1] * size
                client_sizes += np.diff(cuts[c], prepend=0, append=size)
            most = max(most, int(client_sizes.min()))
            if most >= min_size:
                return cuts
        raise DataError(
            f"DirichletClasses: none of {self.tries} draws gave each of {self.clients} clients {min_size} samples, "
            f"the best gave {most}: lower min_size, raise alpha = {self.alpha} or tries, or use fewer clients"
        )


@dataclass(frozen=True)
class DirichletReuse(NamedPartition, name="dirichlet_reuse"):
    """Dirichlet per client, equal sizes, samples used more than once (FedSWA).

    Client `i` draws `q_i ~ Dir(alpha * ones(C))` and gets exactly `n // N` samples whose labels are independent draws
    from `q_i`. Samples of a class are taken in one random order. When the class is used up, they are taken again from
    the start. So several clients may hold the same sample, and some samples are never used (CIFAR-100, 100 clients,
    alpha = 0.1: 11 %).

    Raises `SettingError` if `alpha` is out of range or there are more clients than samples.
    """

    clients: Count
    """N, how many there are"""
    alpha: Concentration
    """the concentration; the smaller, the fewer classes a client holds"""

    def __call__(self, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted. An index may occur more than once."""
        check_samples("DirichletReuse", self.clients, len(labels))
        rng = generator(seed, Purpose.PARTITION)
        pools = by_class(labels, rng)
        used = np.zeros(len(pools), dtype=np.int64)
        clients = []
        for _ in range(self.clients):
            q = rng.dirichlet(np.full(len(pools), self.alpha))
            counts = rng.multinomial(len(labels) // self.clients, q)
            parts = []
            for pool, start, count in zip(pools, used, counts, strict=True):
                parts.append(pool.take(range(start, start + count), mode="wrap"))
            clients.append(np.sort(np.concatenate(parts)))
            used += counts
        return clients


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
            theta = _log_gamma(self.alpha, len(tree), rng)
            phi = _log_gamma(self.beta, len(pools), rng)
            mixture = Mixture(tree, theta, phi)
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
        coarse = [c for c, leaves in enumerate(self.tree) if left[leaves].any()]
        theta = _normalised(self.theta[coarse])
        q = np.zeros(len(left))
        for share, c in zip(theta, coarse, strict=True):
            leaves = self.tree[c]
            leaves = leaves[left[leaves] > 0]
            q[leaves] = share * _normalised(self.phi[leaves])
        return q


def _tree(labels: Ints, coarse: Ints) -> list[Ints]:
    """For each coarse label that occurs, its labels, as positions among the labels that occur."""
    _, first, position = np.unique(labels, return_index=True, return_inverse=True)
    parent = coarse[first]
    odd = np.flatnonzero(coarse != parent[position])
    if odd.size:
        i = odd[0]
        low, high = sorted([int(coarse[i]), int(parent[position[i]])])
        raise DataError(f"Pachinko: samples of label {labels[i]} have the coarse labels {low} and {high}: must be one")
    return [np.flatnonzero(parent == c) for c in np.unique(parent)]


def _log_gamma(alpha: float, size: int, rng: np.random.Generator) -> Floats:
    """Logarithms of gamma draws, `[size]`. Any subset of the draws, normalised, is a draw from Dir(alpha).

    G(alpha) has the distribution of G(alpha + 1) * U**(1 / alpha) with U uniform. The logarithm is finite even if the
    draw itself would underflow.
    """
    draws: Floats = np.log(rng.standard_gamma(alpha + 1, size)) + np.log1p(-rng.random(size)) / alpha
    return draws


def _normalised(logs: Floats) -> Floats:
    """`exp(logs)` with the sum 1. The largest is taken out first, so that no exponential overflows."""
    weights = np.exp(logs - logs.max())
    shares: Floats = weights / weights.sum()
    return shares


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
        parts: list[list[Ints]] = [[] for _ in range(self.clients)]
        for c, pool in enumerate(pools):
            holders = np.flatnonzero((first == c) | (second == c))
            if len(holders) > 0:
                for i, part in zip(holders, np.array_split(pool, len(holders)), strict=True):
                    parts[i].append(part)
        clients = []
        for number, client_parts in enumerate(parts):
            client = np.sort(np.concatenate(client_parts))
            check(
                client.size > 0,
                "ClassPairs.clients",
                self.clients,
                f"must be fewer: client {number} would hold no sample",
            )
            clients.append(client)
        return clients
