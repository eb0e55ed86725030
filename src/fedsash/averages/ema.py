"""The exponential moving average over rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ..settings.errors import check
from ..settings.limits import Fraction
from ..vector import exact_sums
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from .base import Average, check_vector

Precision = Literal["auto", "single", "double"]


def zeros_for_ema(w: Tensor, precision: Precision) -> Tensor:
    """A vector of zeros as long as `w` `[d]`, of the type in which an EMA of such models is kept."""
    if precision == "single" and w.dtype != torch.float64:
        return torch.zeros(w.shape, dtype=torch.float32, device=w.device)
    return exact_sums.zero(w)


def in_a_loop(precision: Precision) -> Precision:
    """The precision of an average in a `Tracker`, where "auto" is single."""
    if precision == "auto":
        return "single"
    return precision


@dataclass(frozen=True)
class EMA(Average, name="ema"):
    """The exponential moving average of the models (as in Tarvainen & Valpola 2017).

        ema_t = decay * ema_{t-1} + (1 - decay) * w_t

    With n the number of models observed so far, it begins

    - with `start = "first"` at ema_1 = w_1;
    - with `start = "initial"` at ema_0 = w_0, whose weight after n models is decay^n;
    - with `start = "zero"` at ema_0 = 0. The value is ema / (1 - decay^n) (the correction of Kingma & Ba 2015).

    With `warmup` the model that comes after n others has the decay `min(decay, (1 + n) / (10 + n))`, as in TensorFlow's
    ExponentialMovingAverage.

    In float32, the type in which PyTorch's own EMA keeps such models, each update rounds, by at most 2^-23 of the
    largest value, and these errors add up to at most 1 / (1 - decay) times as much: 1e-4 of it for decay = 0.999.

    The average of a constant model is that model. Before the first round it is the current model.

    State: `ema` `[d]`; `seen` int64 `[]`, the number n.
    """

    decay: Fraction
    """the share of the average that is kept when a model comes; 0 is the model itself, bitwise"""

    start: Literal["first", "initial", "zero"] = "first"
    """with what it begins: "first", with the first model observed; "initial", with the initial model; "zero", with 0,
    for which the value is corrected"""

    _: KW_ONLY
    warmup: bool = False
    """whether the decay grows at first, so that early models are forgotten sooner"""

    precision: Precision = "auto"
    """the type in which it is kept: "single", float32 (float64 for models in float64); "double", float64; "auto",
    single in a `Tracker`, else double"""

    def __post_init__(self) -> None:
        requirement = 'must not be "zero" with warmup: its correction needs a constant decay'
        check(not (self.warmup and self.start == "zero"), "EMA.start", self.start, requirement)

    def in_a_loop(self) -> EMA:
        return replace(self, precision=in_a_loop(self.precision))

    def init(self, w: Tensor) -> Vectors:
        check_vector(w)
        ema = zeros_for_ema(w, self.precision)
        if self.start == "initial":
            ema.copy_(w.detach())
        return {"ema": ema, "seen": torch.tensor(0)}

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        n = self.count(state)
        decay = self.decay
        if self.warmup:
            decay = min(decay, (1 + n) / (10 + n))
        if decay == 0 or (n == 0 and self.start == "first"):
            w.copy_to(state["ema"])
        else:
            w.draw(state["ema"], 1 - decay)
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return (state["ema"] / self._weight(self.count(state))).to(w)

    def take_over(self, state: Vectors, w: Tensor, count: int) -> None:
        state["ema"].copy_(w)
        state["ema"] *= self._weight(count)
        state["seen"].fill_(count)

    def _weight(self, count: int) -> float:
        """The weight that `count` models have in `ema` together: 1, unless it began at 0."""
        if self.start == "zero":
            return 1 - self.decay**count
        return 1.0
