"""The bias-corrected exponential moving average over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor

from ..settings.errors import MOST
from ..settings.limits import Count, CountFromZero, Fraction, Strength
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from .base import Average, check_vector
from .ema import Precision, in_a_loop, zeros_for_ema

Offset = Annotated[float, Interval(ge=1, le=MOST)]


@dataclass(frozen=True)
class BEMA(Average, name="bema"):
    """The EMA of the models and a share of their way from the first one (Block & Zhang 2025, arXiv 2508.00180).

        ema_t  = (1 - beta_t) * ema_{t-1} + beta_t * w_t,    beta_t = max((rho + gamma * t)^-kappa, least)
        bema_t = ema_t + alpha_t * (w_t - w_0),              alpha_t = (rho + gamma * t)^-eta

    t is the number of finished rounds or updates, whatever `start` and `every` are. It begins at ema_0 = w_0. With
    `eta = 1000` and `rho = 10`, alpha_t is below every float64 number, so 0: it is the EMA alone. With `kappa = 1000`,
    too, it is `EMA(1 - least, start="initial")`.

    The weights of the models sum to 1, and that of w_0 may be negative. So it extrapolates: its value may lie where no
    model has been. BatchNorm's statistics, of which a variance may not be negative, are those of the current model.

    w_0 is the initial model, with which `init` is called: of a run that before the first round, of a `Tracker` the
    module as it was when the tracker was made. With `start` above 0, w_0 is the first model observed, that after
    `start` rounds. A copy of it stays in the state.

    The variant is that of `BEMACallback` in TRL, in its names (with its values, where they differ) `update_freq` (400)
    for `every`, `ema_power` for `kappa`, `bias_power` for `eta`, `lag` for `rho`, `multiplier` for `gamma`,
    `min_ema_multiplier` for `least`, and `update_after` for `start`. Where its documentation and its code differ, this
    is so: it says that `bias_power = 0` switches the correction off, but in its code, by its formula and here
    alpha_t is then 1. Between `update_after` and the next update its averaged model is still the initial one; here it
    is w_0, the model after `start` rounds.

    Before the first observed model it is the current model.

    State: `ema` `[d]`; `initial`, `latest` `[d]`, w_0 and the last model observed, in the model's type; `round` int64
    `[]`, the t of the latter; `seen` int64 `[]`, the number of models observed.
    """

    kappa: Strength = 0.5
    """the power with which the share of a new model in the EMA falls; 0 takes the new model, 1000 leaves `least`"""

    eta: Strength = 0.2
    """the power with which the correction falls; 0 adds all of the way from the first model, 1000 nothing"""

    rho: Offset = 10.0
    """the age with which both powers begin; a larger one makes both steadier at first"""

    gamma: Strength = 1.0
    """how much older both powers become with each round; 0 leaves both constant"""

    _: KW_ONLY
    least: Fraction = 0.0
    """the smallest share of a new model in the EMA"""

    every: Count = 1
    """a model is taken after every so many rounds, counted from `start`; 1 takes all"""

    start: CountFromZero = 0
    """a number r: the first model is that after r finished rounds; 0 is the initial model"""

    precision: Precision = "auto"
    """the type in which the EMA is kept: "single", float32 (float64 for models in float64); "double", float64; "auto",
    single in a `Tracker`, else double"""

    extrapolates: ClassVar[bool] = True

    def in_a_loop(self) -> BEMA:
        return replace(self, precision=in_a_loop(self.precision))

    def init(self, w: Tensor) -> Vectors:
        check_vector(w)
        ema = zeros_for_ema(w, self.precision)
        ema.copy_(w.detach())
        initial = w.detach().clone()
        latest = w.detach().clone()
        return {"ema": ema, "initial": initial, "latest": latest, "round": torch.tensor(0), "seen": torch.tensor(0)}

    def observes(self, round: int) -> bool:
        return round >= 1 and round >= self.start and (round - self.start) % self.every == 0

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        w.copy_to(state["latest"])
        if self.start > 0 and self.count(state) == 0:
            w.copy_to(state["initial"])
            w.copy_to(state["ema"])
        else:
            w.draw(state["ema"], self.share(round))
        state["round"].fill_(round)
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        ema = state["ema"]
        correction = self.correction(int(state["round"]))
        if correction == 0:
            return ema.to(w, copy=True)
        way = state["latest"].to(ema)
        way = way - state["initial"].to(ema)
        return (ema + correction * way).to(w)

    def share(self, round: int) -> float:
        """beta_t, the share of the model of a round in the EMA."""
        return max(self._age_to_the(-self.kappa, round), self.least)

    def correction(self, round: int) -> float:
        """alpha_t, the share of the way from the first model that is added."""
        return self._age_to_the(-self.eta, round)

    def _age_to_the(self, power: float, round: int) -> float:
        """`(rho + gamma t)^power`, for powers of at most 0; one below every float64 number is 0."""
        return math.pow(self.rho + self.gamma * round, power)
