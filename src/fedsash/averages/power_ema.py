"""The exponential moving average whose memory is a share of the training so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from ..settings.errors import check
from ..settings.limits import Strength
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from .base import Average, check_vector
from .ema import Precision, in_a_loop, zeros_for_ema
from .profiles import FLATTEST, exponent

Width = Annotated[float, Interval(ge=1e-6, le=FLATTEST)]


@dataclass(frozen=True)
class PowerEMA(Average, name="power_ema"):
    """The EMA with a power function as its profile (Karras et al. 2024, section 3.1).

        ema_n = beta_n * ema_{n-1} + (1 - beta_n) * w_n,    beta_n = (1 - 1/n)^(1 + gamma)

    n is the number of models observed, so ema_1 = w_1. After n models the i-th one has the weight
    `(i^(gamma+1) - (i-1)^(gamma+1)) / n^(gamma+1)`: the profile keeps its shape while the training grows, so the
    length of the training need not be known. `gamma = 0` is the mean of all models.

    `sigma_rel` is the standard deviation of this profile as a share of the training so far:
    sigma_rel^2 = (gamma+1) / ((gamma+2)^2 (gamma+3)). The paper has 0.05 and 0.10.

    A run that keeps running sums gives nearly the same afterwards, for any `sigma_rel` (see `profiles`).

    In float32 each update rounds, by at most 2^-23 of the largest value, and after n models these errors add up to at
    most 1 + n / (gamma + 2) times as much.

    Before the first round it is the current model.

    State: `ema` `[d]`; `seen` int64 `[]`, the number n.
    """

    sigma_rel: Width = 0.1
    """the width of the average, as a share of the training so far"""

    _: KW_ONLY
    gamma: Strength | None = None
    """the power itself, in place of `sigma_rel`; 0 is the mean of all models; left out, it is that of `sigma_rel`"""

    precision: Precision = "auto"
    """the type in which it is kept: "single", float32 (float64 for models in float64); "double", float64; "auto",
    single in a `Tracker`, else double"""

    def __post_init__(self) -> None:
        if self.gamma is not None:
            default = type(self).sigma_rel
            requirement = "must be left out with gamma, which says the same"
            check(self.sigma_rel == default, "PowerEMA.sigma_rel", self.sigma_rel, requirement)

    @property
    def power(self) -> float:
        """The gamma of the formula."""
        if self.gamma is not None:
            return self.gamma
        return exponent(self.sigma_rel)

    def in_a_loop(self) -> PowerEMA:
        return replace(self, precision=in_a_loop(self.precision))

    def init(self, w: Tensor) -> Vectors:
        check_vector(w)
        return {"ema": zeros_for_ema(w, self.precision), "seen": torch.tensor(0)}

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        n = self.count(state) + 1
        if n == 1:
            w.copy_to(state["ema"])
        else:
            decay = (1 - 1 / n) ** (1 + self.power)
            w.draw(state["ema"], 1 - decay)
        state["seen"].fill_(n)

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return state["ema"].to(w, copy=True)

    def take_over(self, state: Vectors, w: Tensor, count: int) -> None:
        state["ema"].copy_(w)
        state["seen"].fill_(count)
