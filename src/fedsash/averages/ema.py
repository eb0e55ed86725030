"""The exponential moving average over rounds."""

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
class EMA(Average):
    """The exponential moving average of the models (as in Tarvainen & Valpola 2017).

        ema_t = decay * ema_{t-1} + (1 - decay) * w_t

    `start` says where it begins; n is the number of models observed so far:

    - `"first"` (the default): with the first model observed, ema_1 = w_1;
    - `"initial"`: with the initial model, ema_0 = w_0. Its weight after n models is decay^n;
    - `"zero"`: with ema_0 = 0. The value is ema / (1 - decay^n) (the correction of Kingma & Ba 2015).

    With `decay = 0` it is the model itself, bitwise. The average of a constant model is that model. Before the first
    round it is the current model.

    State: `ema` float64 `[d]`; `seen` int64 `[]`, the number n.
    """

    decay: float
    start: Literal["first", "initial", "zero"] = "first"

    def __post_init__(self) -> None:
        check(0 <= self.decay < 1, "EMA.decay", self.decay, "must be at least 0 and less than 1")

    def init(self, w: Tensor) -> Vectors:
        check_vector(w)
        ema = exact_sums.zero(w)
        if self.start == "initial":
            ema.copy_(w.detach())
        return {"ema": ema, "seen": torch.tensor(0)}

    def take(self, state: Vectors, w: Tensor, round: int, past: Mapping[int, Tensor]) -> None:
        first = self.start == "first" and self.count(state) == 0
        if first or self.decay == 0:
            state["ema"].copy_(w)
        else:
            state["ema"].lerp_(w.to(state["ema"]), 1 - self.decay)
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        weight = 1 - self.decay ** self.count(state) if self.start == "zero" else 1.0
        return (state["ema"] / weight).to(w)
