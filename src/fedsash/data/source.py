"""Samples before they belong to clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from ..settings.setting import Setting
from ..tasks import Task, check_unnamed
from ..vector.arrays import Ints
from ..vector.randomness import Purpose, generator
from ..vector.shown import Shown
from .federated import FederatedData
from .partitions import as_partition
from .partitions.common import Partition, assigned, fields_of
from .samples import Samples, Scales
from .transform import Transform

_HELD_OUT = 1  # makes this draw independent of the partition's draws


@dataclass(frozen=True, eq=False, repr=False)
class Source(Shown):
    """Samples before they belong to clients. The fields are those of `FederatedData`."""

    train: Samples
    test: Samples | None
    classes: int
    transform: Transform
    label_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    task: Task | None = None
    user_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = field(default=(), repr=False)
    feature_scales: Scales = field(default=(), repr=False)

    def learning(self, task: Task) -> Source:
        """The same samples with another task. Raises `SettingError` unless its labels are like these."""
        check_unnamed(task, self.label_names, "the labels")
        labels = {"training": task.labelled(self.train.y)}
        if self.test is not None:
            labels["test"] = task.labelled(self.test.y)
        classes = 0
        if task.labels == "integers":
            classes = self.classes or max(task.classes(y) for y in labels.values())
        for name, y in labels.items():
            task.check_labels(y, classes, f"the {name} labels")
        return replace(self, task=task, classes=classes)

    def partition(self, rule: Any, seed: int = 0) -> FederatedData:
        """Give each client the training samples that `rule(labels, seed)` assigns to it.

        The rule is given as an object, by its name, or as a dict as in an experiment file. It may name other fields of
        the samples in `by`, such as `("domain", "y")`. Then it is called with these fields, in that order, and the
        seed. Raises `SettingError` if the samples lack one of them.
        """
        rule = as_partition(rule)
        return self.of(assigned(rule, self.train, seed), rule, seed)

    def of(self, clients: Sequence[Ints], rule: Partition, seed: int = 0) -> FederatedData:
        """The samples with the clients that a rule has made: each holds the training samples at its indices.

        The test set is dealt out by the fields that the rule uses (see `FederatedData.deal_test`).
        """
        data = FederatedData(**vars(self), clients=clients)
        if self.test is None:
            return data
        return data.deal_test(seed, fields_of(rule))


@runtime_checkable
class Dataset(Protocol):
    """A data set: settings from which samples can be loaded."""

    def load(self, seed: int = 0) -> Source: ...


class NamedDataset(Setting):
    """A data set that experiment files can name. Any other object with `load` is one, too."""


def hold_out(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples | None]:
    """Split off a random `share` of each user's samples; without users, of each domain's, else of all samples.

    Each of them keeps at least one sample. A pure function of the samples' order, `share` and `seed`. Returns the rest
    and the split-off samples, both in the samples' order. The second is None if it has no sample.
    """
    return _parted(samples, split_off(_groups(samples), share, seed))


def hold_out_latest(samples: Samples, share: float, times: NDArray[np.float64]) -> tuple[Samples, Samples | None]:
    """As `hold_out`, but each group's `share` is its latest samples, given the time of each sample `[n]`.

    Samples of one time stay together: the earliest time that is split off is split off as a whole, unless this would
    leave a group without any sample.
    """
    groups = _groups(samples)
    is_held_out = np.zeros(len(groups), dtype=np.bool_)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        count = round(share * len(members))
        if count == 0:
            continue
        times_of_group = times[members]
        first = np.sort(times_of_group)[-count]
        is_late = times_of_group >= first
        if is_late.all():
            is_late = times_of_group > first
        is_held_out[members[is_late]] = True
    return _parted(samples, is_held_out)


def _groups(samples: Samples) -> NDArray[Any]:
    """The group of each sample `[n]`: its user, without users its domain, else one for all."""
    if samples.user is not None:
        return samples.user.numpy()
    if samples.domain is not None:
        return samples.domain.numpy()
    return np.zeros(len(samples))


def _parted(samples: Samples, is_held_out: NDArray[np.bool_]) -> tuple[Samples, Samples | None]:
    """The samples that are not held out, and those that are; None if there are none of these."""
    held_out = torch.from_numpy(is_held_out)
    if not held_out.any():
        return samples, None
    return samples[~held_out], samples[held_out]


def split_off(groups: NDArray[Any], share: float, seed: int) -> NDArray[np.bool_]:
    """Which samples `[n]` a random `share` of each group has, given the group of each sample `[n]`."""
    rng = generator(seed, Purpose.PARTITION, _HELD_OUT)
    _, sizes = np.unique(groups, return_counts=True)
    is_held_out = np.zeros(len(groups), dtype=np.bool_)
    for members in np.split(np.argsort(groups, kind="stable"), sizes.cumsum()[:-1]):
        count = min(round(share * len(members)), len(members) - 1)
        is_held_out[rng.permutation(members)[:count]] = True
    return is_held_out
