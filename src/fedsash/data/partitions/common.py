"""What the partition rules share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import check

Ints = NDArray[np.int64]


def check_clients(rule: str, clients: int) -> None:
    """Raise `ValueError` unless there is at least one client."""
    check(clients >= 1, f"{rule}.clients", clients, "must be at least 1")


def check_alpha(rule: str, alpha: float) -> None:
    """Raise `ValueError` unless a concentration is positive; far outside this range its gamma draws overflow."""
    check(1e-9 <= alpha <= 1e9, f"{rule}.alpha", alpha, "must be positive, from 1e-9 to 1e9")


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
