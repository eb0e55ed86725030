"""FedCM (Xu et al. 2021): each local step mixes in the last round's global direction."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from ..settings.limits import Factor
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Weighting


@dataclass(frozen=True)
class FedCM(Method, name="fedcm"):
    """Client momentum: each step mixes in the last round's global direction (Xu et al. 2021).

    `Delta` `[D]`, in units of a gradient, is zero at first; K_i is the number of the client's steps and eta its rate.

        step      y <- y - eta * (alpha * g(y) + (1 - alpha) * Delta_t)
        server    Delta_{t+1} = mean of (x_t - y_i) / (K_i * eta),    x_{t+1} = mean y_i

    K_i * eta is the sum of the rates that the client used in this round; with local momentum it is the sum of the
    weights with which its steps enter the update (`LocalRun.reach`). (Published codes use the same K for all clients,
    and one of them the rate of the next round.) In the first round Delta is 0, so steps are alpha times as long. Weight
    decay is added after the mixture, and Delta contains it. The paper's `weighting` is uniform.
    """

    alpha: Factor = 0.1
    """the share of the client's own gradient in a step; 1 is uniform FedAvg"""

    _: KW_ONLY
    weighting: Weighting = "uniform"

    @property
    def divides_updates(self) -> bool:
        return True

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"Delta": torch.zeros_like(w)}

    def direction(self, step: Step) -> Tensor:
        return torch.lerp(step.server_state["Delta"], step.grad(step.w), self.alpha)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return with_direction(local), {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"Delta": received.mean["Delta"]}


def with_direction(local: LocalRun) -> Upload:
    """The client's update, and as `"Delta"` its mean direction, in units of a gradient; the old one at rate 0."""
    mean = torch.where(local.lr_sum > 0, local.direction, local.server_state["Delta"])
    return {"delta": local.delta, "Delta": mean}
