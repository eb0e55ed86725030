"""Elastic weight consolidation towards the received model (ours, after Kirkpatrick et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings.limits import Strength
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload


@dataclass(frozen=True)
class EWC(Method, name="ewc"):
    """FedProx with a stronger proximal term on weights that matter to other clients (after Kirkpatrick et al. 2017).

    `F` `[D]` is the importance of each weight to the clients of the last round, zero at first.

        step      w <- w - eta * (g(w) + mu * F * (w - w_t))
        client    F_i = mean over its local steps of g^2, element-wise, g without the proximal term
        server    F <- mean F_i

    F_i estimates the diagonal of the Fisher information by squared gradients, as usual. Here they are gradients of
    batches, which are computed anyway. IMA names such a regulariser as future work; this form of it is ours.
    """

    mu: Strength = 1.0
    """the factor of the proximal term; 0 is FedAvg. With batches of B samples F_i is about B times smaller, so mu must
    be larger"""

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"fisher": torch.zeros_like(w)}

    def round_state(self, local: LocalRun) -> Vectors:
        return {"squares": torch.zeros_like(local.w)}

    def direction(self, step: Step) -> Tensor:
        g = step.grad(step.w)
        step.round_state["squares"].addcmul_(g, g)
        return torch.add(g, step.server_state["fisher"] * (step.w - step.sent), alpha=self.mu)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta, "fisher": local.round_state["squares"] / local.steps}, {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"fisher": received.mean["fisher"]}
