"""What the partition rules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...basics.arrays import Floats, Ints
from ...basics.errors import check


@runtime_checkable
class Partition(Protocol):
    """Who holds which samples: `partition(labels, seed)` gives each client's indices (see `by` in `partitions`)."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[Ints]: ...


class LabelRule(Partition, Protocol):
    """A dataclass that shares samples out over `clients` by their labels alone."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def clients(self) -> int: ...

    def __call__(self, labels: Ints, seed: int, /) -> list[Ints]: ...


def check_client_count(rule: str, clients: int) -> None:
    """Raise `ValueError` unless there is at least one client."""
    check(clients >= 1, f"{rule}.clients", clients, "must be at least 1")


def check_alpha(rule: str, alpha: float, name: str = "alpha") -> None:
    """Raise `ValueError` unless a concentration is positive; far outside this range its gamma draws overflow."""
    check(1e-9 <= alpha <= 1e9, f"{rule}.{name}", alpha, "must be positive, from 1e-9 to 1e9")


def check_samples(rule: str, clients: int, samples: int, each: int = 1) -> None:
    """Raise `ValueError` unless there are `each` samples for every client."""
    right = f"must be at most {samples // each}, for {samples} samples and at least {each} for each client"
    check(clients * each <= samples, f"{rule}.clients", clients, right)


def equal_sizes(samples: int, clients: int) -> Ints:
    """Sizes `[N]` that add up to `samples`; the first clients get one more where it does not divide."""
    return samples // clients + (np.arange(clients) < samples % clients)


def by_class(labels: NDArray[Any], rng: np.random.Generator) -> list[Ints]:
    """The indices of each class that occurs, in random order."""
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def fill(pools: list[Ints], used: Ints, size: int, mixture: Callable[[Ints], Floats], rng: np.random.Generator) -> Ints:
    """A client's `size` samples, sorted: labels are drawn from a mixture, samples without replacement.

    `pools` holds the samples of each class in random order; of class c the first `used[c]` are taken, and what is taken
    now is added to it, in place. `mixture(left)` gives `q` `[C]` for `left` `[C]` samples of each class, 0 for those of
    which none is left, and is asked again whenever a class is used up.
    """
    sizes = np.array([len(pool) for pool in pools])
    start = used.copy()
    while need := size - (used - start).sum():
        left = sizes - used
        used += _draw(mixture(left), left, need, rng)
    return np.sort(np.concatenate([pool[a:b] for pool, a, b in zip(pools, start, used, strict=True)]))


def _draw(q: Floats, left: Ints, need: int, rng: np.random.Generator) -> Ints:
    """How many samples of each class are taken by up to `need` draws from `q`, the last being one that uses up a class.

    So each call either meets the need or uses up a class, and the rule ends.
    """
    drawn = rng.choice(len(q), size=need, p=q)
    stop = need
    for c in np.flatnonzero((left > 0) & (np.bincount(drawn, minlength=len(q)) >= left)):
        stop = min(stop, int(np.flatnonzero(drawn == c)[left[c] - 1]) + 1)
    return np.bincount(drawn[:stop], minlength=len(q))
