"""Stochastic weight averaging on the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.errors import check
from . import exact_sums
from .base import Average, check_vector


@dataclass(frozen=True)
class SWA(Average):
    """The mean of all models collected once a cycle from `start` on (Izmailov et al. 2018; Caldarola et al. 2022).

    With n models collected so far, the next one w gives

        swa <- (n * swa + w) / (n + 1)

    `start` = t_0 and the rounds i of the rule are 0-based indices: round i leads to the model after round i + 1. With
    c = `cycle` and a client learning rate that falls within each cycle:

    - `collect = "bottom"` (Izmailov's rule, the default): i >= t_0 and (i - t_0) mod c = c - 1, the end of a cycle,
      where the learning rate is lowest;
    - `collect = "top"` (the published code of Caldarola et al.): i > t_0 and (i - t_0) mod c = 0, the first round
      of each cycle but the first.

    A cyclic learning-rate schedule counts rounds from 0, so the two are in step only if t_0 is a multiple of c.
    Before the first collection it is the current model.

    State: `high`, `low` float64 `[d]`, the sum (see `exact_sums`); `seen` int64 `[]`, how many models are in it.
    """

    start: int
    cycle: int = 1
    collect: Literal["bottom", "top"] = "bottom"

    def __post_init__(self) -> None:
        check(self.start >= 0, "SWA.start", self.start, "must not be negative")
        check(self.cycle >= 1, "SWA.cycle", self.cycle, "must be at least 1")
        check(self.collect in ("bottom", "top"), "SWA.collect", self.collect, "must be bottom or top")

    def init(self, w: Tensor) -> Vectors:
        check_vector(w)
        return {"high": exact_sums.zero(w), "low": exact_sums.zero(w), "seen": torch.tensor(0)}

    def observes(self, round: int) -> bool:
        since = round - 1 - self.start
        if self.collect == "top":
            return since > 0 and since % self.cycle == 0
        return since >= 0 and since % self.cycle == self.cycle - 1

    def take(self, state: Vectors, w: Tensor, round: int, past: Mapping[int, Tensor]) -> None:
        exact_sums.add(state["high"], state["low"], plus=w)
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return exact_sums.mean(state["high"], state["low"], self.count(state), w)
