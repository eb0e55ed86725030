"""Stochastic weight averaging on the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..settings.errors import RunError
from ..settings.limits import Count
from ..vector import exact_sums
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from .base import Average, check_vector


@dataclass(frozen=True)
class SWA(Average, name="swa"):
    """The mean of the models from `start` on, one of each cycle (Izmailov et al. 2018; Caldarola et al. 2022).

    With n models collected so far, the next one w gives

        swa <- (n * swa + w) / (n + 1)

    It takes the models

    - with `collect = "bottom"` (Izmailov's rule) after `start + cycle - 1`, `start + 2 cycle - 1`, ... rounds, where a
      cyclic schedule has its lowest learning rate;
    - with `collect = "top"` (the published code of Caldarola et al.) after `start + cycle`, `start + 2 cycle`, ...
      rounds.

    The papers' t_0, a 0-based index, is `start - 1`: round t_0 makes the first model. A schedule `Cyclic` with
    `start = t_0`, a multiple of `cycle`, has the same cycles. Before the first collection SWA is the current model.

    State: `high`, `low` float64 `[d]`, the sum (see `exact_sums`); `seen` int64 `[]`, how many models are in it.
    """

    start: Count
    """a number r: the first cycle begins with the model after r finished rounds"""

    cycle: Count = 1
    """how many models are one cycle"""

    collect: Literal["bottom", "top"] = "bottom"
    """which model of a cycle it takes: "bottom", the last one; "top", the first one, except in the first cycle"""

    def init(self, w: Tensor) -> Vectors:
        check_vector(w)
        return {"high": exact_sums.zero(w), "low": exact_sums.zero(w), "seen": torch.tensor(0)}

    def observes(self, round: int) -> bool:
        since = round - self.start
        if self.collect == "top":
            return since > 0 and since % self.cycle == 0
        return since >= 0 and since % self.cycle == self.cycle - 1

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        exact_sums.add(state["high"], state["low"], plus=[w])
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return exact_sums.mean(state["high"], state["low"], self.count(state), w)

    def take_over(self, state: Vectors, w: Tensor, count: int) -> None:
        if self.start > 1:
            raise RunError(f"SWA.start = {self.start}: the average has begun, so that it must be 1 here")
        exact_sums.fill(state["high"], state["low"], w, count)
        state["seen"].fill_(count)
