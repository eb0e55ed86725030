"""Samples before they are shared out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from ..basics.errors import check
from ..basics.randomness import Purpose, generator
from ..basics.shown import Shown
from ..tasks import Task
from .federated import CLASSIFICATION, FederatedData, Samples
from .partitions.common import Partition
from .transform import Transform

_HELD_OUT = 1  # keeps this draw apart from the partition's own


@dataclass(frozen=True, eq=False, repr=False)
class Source(Shown):
    """Samples before they are shared out; fields as in `FederatedData`."""

    train: Samples
    test: Samples | None
    classes: int
    transform: Transform
    label_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    task: Task = CLASSIFICATION

    def partition(self, rule: Partition, seed: int = 0) -> FederatedData:
        """Share the training samples out as `rule(labels, seed)` says.

        A rule whose `by` names other fields of the samples is called with these, in that order: `("domain", "y")`.
        Raises `ValueError` if the samples do not have one of them.
        """
        given = []
        for name in getattr(rule, "by", ("y",)):
            numbers = getattr(self.train, name)
            right = f"it shares out by {name}, which these data do not have"
            check(numbers is not None, type(rule).__name__, rule, right)
            given.append(numbers.cpu().numpy())
        return FederatedData(**vars(self), clients=rule(*given, seed))


@runtime_checkable
class Dataset(Protocol):
    """Anything with samples to load."""

    def load(self, seed: int = 0) -> Source: ...


def hold_out(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples | None]:
    """Split off the `share` of each user, of each domain where there are no users, or else of all samples, at random.

    A pure function of the samples' order, `share` and `seed`. Both parts keep the samples' order; the second is None
    if it has no sample.
    """
    rng = generator(seed, Purpose.PARTITION, _HELD_OUT)
    groups = next((g.numpy() for g in (samples.user, samples.domain) if g is not None), np.zeros(len(samples)))
    _, sizes = np.unique(groups, return_counts=True)
    held = np.zeros(len(samples), dtype=np.bool_)
    for members in np.split(np.argsort(groups, kind="stable"), sizes.cumsum()[:-1]):
        held[rng.permutation(members)[: round(share * len(members))]] = True
    if not held.any():
        return samples, None
    return samples[torch.from_numpy(~held)], samples[torch.from_numpy(held)]
