"""Averages computed after a run, from running sums of its models that were saved at some rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..vector import exact_sums
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from .swa import SWA

SUM = SWA(1)
"""The average whose state is the running sum: SWA from the first model on."""

Weights = NDArray[np.float64]


@dataclass(eq=False)
class RunningSum:
    """S_n = w_1 + ... + w_n: the sum of the first n = `count` models.

    It is `high + low`, float64 `[d]` (see `exact_sums`).
    """

    high: Tensor
    low: Tensor
    count: int

    @classmethod
    def of(cls, state: Vectors) -> RunningSum:
        """The sum in a state of `SUM`, on the host; it shares the memory of a state that is on the host."""
        return cls(state["high"].cpu(), state["low"].cpu(), int(state["seen"]))

    @classmethod
    def empty(cls, size: int) -> RunningSum:
        """The sum S_0 of no model, for models of `size` numbers."""
        return cls(torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64), 0)

    def mean_since(self, earlier: RunningSum, like: Tensor) -> Tensor:
        """The mean `[d]` of the models after `earlier`, rounded once to the type of `like`, on its device.

            (S_n - S_m) / (n - m)

        This is the value of a window of n - m models after n models.
        """
        high = self.high.clone()
        low = self.low.clone()
        exact_sums.add(high, low, minus=[Pieces.of(earlier.high)])
        low -= earlier.low
        return exact_sums.mean(high, low, self.count - earlier.count, like)


def window_starts(counts: Mapping[int, int], at: int) -> dict[int, int]:
    """The last round before each window that ends at round `at` and begins where a sum is, by the window's size.

    `counts` has the number of models in each sum, by round, ascending from 0 models at round 0.
    """
    return {counts[at] - known: round for round, known in counts.items() if known < counts[at]}


def combined(found: Iterable[RunningSum], weights: Weights, like: Tensor) -> list[Tensor]:
    """K weighted means of blocks of models, in one pass: vectors `[d]` of the type of `like`.

    `found` are successive running sums, the first of them S_0. A block holds the models between two successive sums.
    Row k of `weights` float64 `[K, blocks]` has the weight of each block's mean in the k-th result.
    """
    iterator = iter(found)
    before = next(iterator)
    results = [torch.zeros_like(before.high) for _ in weights]
    for after, of_block in zip(iterator, weights.T, strict=True):
        mean = after.mean_since(before, after.high)
        for result, weight in zip(results, of_block, strict=True):
            result.add_(mean, alpha=float(weight))
        before = after
    return [result.to(like) for result in results]
