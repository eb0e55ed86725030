"""Feature skew: every client lives in one domain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ...basics.arrays import Ints
from ...basics.errors import DataError, SettingError, check
from ...basics.randomness import Purpose, generator, key
from ...basics.typed import typed
from .common import LabelRule
from .even import IID


@dataclass(frozen=True)
@typed
class Domains:
    """Feature skew: each domain is shared out over clients of its own (IMA on Digit-Five and PACS).

    `inner` shares out a domain's samples by their labels: `IID` for feature skew alone, `ClassPairs`, `Shards` or a
    Dirichlet for a label skew inside each domain. Its `clients` is 1 (which may be left out in an experiment file) or
    `clients_per_domain`, and stands for the latter. Domains draw independently; which client is of which domain is a
    random permutation. Whatever `inner` uses is used. (IMA's code drops one image of a client with n_i mod B = 1, for
    a BatchNorm that it no longer has; nothing is dropped here.)

    It needs each sample's domain. Raises `ValueError` if `inner` shares out by other things than labels, or if it
    refuses a domain, which is named.
    """

    clients_per_domain: int
    inner: LabelRule = field(default_factory=lambda: IID(1))
    by: ClassVar[tuple[str, ...]] = ("domain", "y")

    def __post_init__(self) -> None:
        k = self.clients_per_domain
        check(k >= 1, "Domains.clients_per_domain", k, "must be at least 1")
        by_labels = getattr(self.inner, "by", ("y",)) == ("y",) and hasattr(self.inner, "clients")
        check(by_labels, "Domains.inner", self.inner, "must be a rule for `clients` that shares out by labels alone")
        right = f"must be clients_per_domain, {k}, or be left out"
        check(self.inner.clients in (1, k), "Domains.inner.clients", self.inner.clients, right)
        object.__setattr__(self, "inner", replace(self.inner, clients=k))

    def __call__(self, domain: Ints, labels: Ints, seed: int) -> list[Ints]:
        """Each client's indices into `labels`, sorted."""
        clients = []
        for d in np.unique(domain).tolist():
            members = np.flatnonzero(domain == d)
            try:
                parts = self.inner(labels[members], key(seed, Purpose.PARTITION, d))
            except (SettingError, DataError) as error:
                raise SettingError("Domains", "inner", self.inner, f"domain {d}: {error}") from error
            clients += [members[part] for part in parts]
        return [clients[i] for i in generator(seed, Purpose.PARTITION).permutation(len(clients))]
