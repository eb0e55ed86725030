"""Parts that several partition rules use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...settings.errors import DataError, brief, check
from ...settings.setting import Setting
from ...vector.arrays import Floats, Ints


@runtime_checkable
class Partition(Protocol):
    """A rule that gives each client its samples: `partition(labels, seed)` returns each client's indices.

    A rule with `by` is called with other fields of the samples (see the package `partitions`).
    """

    def __call__(self, *args: Any, **kwargs: Any) -> list[Ints]: ...


def fields_of(rule: Partition) -> tuple[str, ...]:
    """The fields of the samples by which a rule partitions."""
    return tuple(getattr(rule, "by", ("y",)))


def assigned(rule: Partition, samples: Any, seed: int) -> list[Ints]:
    """The indices of each client's samples by a rule. It is called with the fields of the samples that it names.

    Raises `DataError` if the samples lack a field, `SettingError` if the rule needs classes and the labels are none.
    """
    arguments = []
    for name in fields_of(rule):
        numbers = getattr(samples, name)
        if numbers is None:
            raise DataError(f"{brief(rule)}: it partitions by {name}, which these data do not have")
        arguments.append(numbers.cpu().numpy().copy())  # a rule of one's own may change them
    return rule(*arguments, seed)


class NamedPartition(Setting):
    """A partition rule that experiment files can name. Any other callable is a rule, too."""


class LabelRule(Partition, Protocol):
    """A dataclass that distributes samples over `clients` by their labels only."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def clients(self) -> int: ...

    def __call__(self, labels: Ints, seed: int, /) -> list[Ints]: ...


def check_samples(rule: str, clients: int, samples: int, each: int = 1) -> None:
    """Raise `SettingError` unless there are `each` samples for every client."""
    requirement = f"must be at most {samples // each}, for {samples} samples and at least {each} for each client"
    check(clients * each <= samples, f"{rule}.clients", clients, requirement)


def equal_sizes(samples: int, clients: int) -> Ints:
    """Sizes `[N]` with the sum `samples`. If `clients` does not divide it, the first clients get one sample more."""
    return samples // clients + (np.arange(clients) < samples % clients)


def by_class(labels: NDArray[Any], rng: np.random.Generator) -> list[Ints]:
    """The indices of each class that occurs, in random order. Raises `SettingError` if labels are no classes."""
    requirement = "must be one class for each sample: partition these data by users, or with IID"
    are_classes = labels.ndim == 1 and labels.dtype.kind in "iu"
    check(are_classes, "labels", f"{labels.dtype} {list(labels.shape)}", requirement)
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def fill(pools: list[Ints], used: Ints, size: int, mixture: Callable[[Ints], Floats], rng: np.random.Generator) -> Ints:
    """A client's `size` samples, sorted: labels are drawn from a mixture, samples without replacement.

    `pools` holds the samples of each class in random order. The first `used[c]` samples of class c belong to other
    clients already; `used` is updated in place. `mixture(left)` returns the probabilities `q` `[C]` for `left` `[C]`
    remaining samples of each class; q is 0 for a class without samples. It is called again when a class is used up.
    """
    sizes = np.array([len(pool) for pool in pools])
    starts = used.copy()
    missing = size
    while missing > 0:
        left = sizes - used
        used += _draw(mixture(left), left, missing, rng)
        missing = size - (used - starts).sum()
    parts = [pool[start:end] for pool, start, end in zip(pools, starts, used, strict=True)]
    return np.sort(np.concatenate(parts))


def _draw(q: Floats, left: Ints, count: int, rng: np.random.Generator) -> Ints:
    """The number of samples of each class in up to `count` draws from `q`, which stop when a class is used up.

    So each call either makes all draws or uses up a class, and the rule ends.
    """
    draws = rng.choice(len(q), size=count, p=q)
    stop = count
    is_used_up = (left > 0) & (np.bincount(draws, minlength=len(q)) >= left)
    for c in np.flatnonzero(is_used_up):
        draws_of_class = np.flatnonzero(draws == c)
        stop = min(stop, int(draws_of_class[left[c] - 1]) + 1)
    return np.bincount(draws[:stop], minlength=len(q))
