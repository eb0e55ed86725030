"""Averages after the fact: what running sums of a trajectory's models, kept now and then, can still tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.arrays import Vectors
from . import exact_sums
from .swa import SWA

SUM = SWA(1)
"""What adds up all models: SWA from the first model on, of which only the sum is kept."""

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
        """The sum in a state of `SUM`, on the host; it shares the state's memory where that is there, too."""
        return cls(state["high"].cpu(), state["low"].cpu(), int(state["seen"]))

    @classmethod
    def empty(cls, size: int) -> RunningSum:
        """The sum S_0 of no model, for models of `size` numbers."""
        return cls(torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64), 0)

    def mean_since(self, earlier: RunningSum, like: Tensor) -> Tensor:
        """The mean `[d]` of the models after `earlier`, rounded once to the type of `like`, on its device.

            (S_n - S_m) / (n - m)

        That is the value of a window of n - m models, which this sum's newest model ends.
        """
        high, low = self.high.clone(), self.low.clone()
        exact_sums.add(high, low, minus=earlier.high)
        low -= earlier.low
        return exact_sums.mean(high, low, self.count - earlier.count, like)


def combined(found: Iterable[RunningSum], weights: Weights, like: Tensor) -> list[Tensor]:
    """Several weighted means of blocks of models, in one pass: vectors `[d]` of the type of `like`.

    A block is what lies between two successive sums of `found`, the first of which is S_0. Row k of `weights`
    float64 `[K, blocks]` has the weight of each block's mean in the k-th result.
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
