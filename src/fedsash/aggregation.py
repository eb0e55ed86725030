"""From the uploads of a round's clients to one mean: a streaming weighted sum behind a guard."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .checks import check
from .methods import Method, Upload, Vectors


@dataclass(frozen=True)
class Mean:
    """The weighted mean of the uploads, summed as they come: memory is O(model), whatever the number of clients.

    A client whose upload holds a non-finite value, or a vector whose Euclidean norm exceeds `limit`, is left out and
    named; the weights of the others are scaled up to sum to 1.
    """

    limit: float = 1e6

    def __post_init__(self) -> None:
        check(self.limit > 0, "Mean.limit", self.limit, "must be positive")

    def begin(self, method: Method, sizes: NDArray[np.int64]) -> Sums:
        """Empty sums for a round with s clients of `sizes` `[s]` samples."""
        return Sums(self, method, sizes)


class Sums:
    """The running weighted sums of one round.

    Clients are added in the round's order, whichever finishes first, so that the result repeats bitwise.
    """

    def __init__(self, mean: Mean, method: Method, sizes: NDArray[np.int64]) -> None:
        self._limit, self._uniform_names = mean.limit, method.uniform
        self._uniform = torch.full((len(sizes),), 1 / len(sizes), dtype=torch.float64)
        by_samples = method.weighting == "samples"
        self._weights = torch.from_numpy(sizes / sizes.sum()) if by_samples else self._uniform
        self._sums: Vectors = {}
        self._accepted: list[int] = []
        self._asked = len(sizes)

    def add(self, first: int, upload: Upload, norms: Tensor) -> list[int]:
        """Add the uploads `[b, ...]` of the clients at places `first`, `first + 1`, ... of the round.

        `norms` `[b]` is the largest norm among each client's vectors. Returns the positions, from 0 to b - 1, of the
        clients that were accepted.
        """
        good = [i for i, norm in enumerate(norms.tolist()) if isfinite(norm) and norm <= self._limit]
        self._accepted += [first + i for i in good]
        for name, value in upload.items():
            weights = self._of(name)[first : first + len(value)]
            if len(good) < len(value):
                value, weights = value[good], weights[good]
            if good:
                self._accumulate(name, value, weights)
        return good

    def mean(self) -> Vectors:
        """The weighted means over the accepted clients; empty if there are none."""
        if len(self._accepted) == self._asked:
            return dict(self._sums)
        return {name: total / float(self._of(name)[self._accepted].sum()) for name, total in self._sums.items()}

    @property
    def accepted(self) -> int:
        """How many clients are in the mean."""
        return len(self._accepted)

    def _of(self, name: str) -> Tensor:
        return self._uniform if name in self._uniform_names else self._weights

    def _accumulate(self, name: str, value: Tensor, weights: Tensor) -> None:
        if name not in self._sums:
            self._sums[name] = torch.zeros_like(value[0])
        if len(value) == 1:
            self._sums[name].add_(value[0], alpha=float(weights[0]))
        else:
            self._sums[name] += (weights.to(value) @ value.reshape(len(value), -1)).view(value.shape[1:])


def largest_norms(upload: Upload) -> Tensor:
    """The largest Euclidean norm among each client's vectors, `[b]`; not a number where a value is not one."""
    norms = [torch.linalg.vector_norm(value.reshape(len(value), -1), dim=1) for value in upload.values()]
    return norms[0] if len(norms) == 1 else torch.stack(norms).amax(dim=0)
