"""Partitions by where the samples come from: users and domains."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from ...settings.errors import DataError, SettingError, check
from ...settings.limits import AtLeastOne, Count, Remark
from ...vector.arrays import Ints
from ...vector.randomness import Purpose, generator, key
from .by_size import IID
from .common import LabelRule, NamedPartition, fields_of


@dataclass(frozen=True)
class Users(NamedPartition, name="users"):
    """Natural users: each user of the data (a writer, a role, a photographer) is a client (Caldas et al. 2018).

    Clients are in the order of the users' numbers.

    It needs each sample's user. Raises `SettingError` if no user has `min_samples` samples.
    """

    min_samples: Count = 1
    """how many samples a user must have; users with fewer are left out"""
    max_users: Annotated[int, Interval(ge=1), Remark(" (leave it out for all users)")] | None = None
    """how many users are used at most; left out: all. They are the first ones in a random order that depends on
    the seed only, so a smaller choice is part of a larger one"""
    by: ClassVar[tuple[str, ...]] = ("user",)

    def __call__(self, user: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `user`, sorted."""
        _, sizes = np.unique(user, return_counts=True)
        requirement = f"must be at most {sizes.max()}, the most that a user has"
        check(sizes.max() >= self.min_samples, "Users.min_samples", self.min_samples, requirement)
        large = np.flatnonzero(sizes >= self.min_samples)
        chosen = np.sort(generator(seed, Purpose.PARTITION).permutation(large)[: self.max_users])
        samples_of_users = np.split(np.argsort(user, kind="stable"), sizes.cumsum()[:-1])
        return [samples_of_users[i] for i in chosen]


@dataclass(frozen=True)
class Domains(NamedPartition, name="domains"):
    """Feature skew: each domain is distributed over clients of its own (IMA on Digit-Five and PACS).

    Domains are drawn independently. The clients' order is a random permutation. All samples that `inner` uses are used.
    (IMA's code drops one image of a client with n_i mod B = 1, because of a BatchNorm that it no longer has. Here it is
    used.)

    It needs each sample's domain. Raises `SettingError` if `inner` does not partition by labels, or if it can't
    partition a domain, which is named.
    """

    clients_per_domain: AtLeastOne
    """how many clients each domain is distributed over"""
    inner: LabelRule = field(default_factory=lambda: IID(1))
    """the rule that distributes a domain's samples by their labels: `IID` for feature skew only; `ClassPairs`, `Shards`
    or a Dirichlet for a label skew inside each domain. Its `clients` must be `clients_per_domain`, or 1, which is
    replaced by that (an experiment file may leave it out)"""
    by: ClassVar[tuple[str, ...]] = ("domain", "y")

    def __post_init__(self) -> None:
        k = self.clients_per_domain
        is_label_rule = fields_of(self.inner) == ("y",) and hasattr(self.inner, "clients")
        check(is_label_rule, "Domains.inner", self.inner, "must be a rule for `clients` that partitions by labels only")
        requirement = f"must be clients_per_domain, {k}, or be left out"
        check(self.inner.clients in (1, k), "Domains.inner.clients", self.inner.clients, requirement)
        object.__setattr__(self, "inner", replace(self.inner, clients=k))

    def __call__(self, domain: Ints, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        clients = []
        for d in np.unique(domain).tolist():
            samples = np.flatnonzero(domain == d)
            try:
                parts = self.inner(labels[samples], key(seed, Purpose.PARTITION, d))
            except (SettingError, DataError) as error:
                raise SettingError("Domains", "inner", self.inner, f"domain {d}: {error}") from error
            clients += [samples[part] for part in parts]
        order = generator(seed, Purpose.PARTITION).permutation(len(clients))
        return [clients[i] for i in order]
