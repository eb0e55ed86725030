"""Elastic weight consolidation towards the received model (ours, after Kirkpatrick et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..basics.errors import check_strength
from ..basics.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Vectors, zeros


@dataclass(frozen=True)
class EWC(Method):
    """FedProx whose proximal term is stronger where the other clients need a weight (after Kirkpatrick et al. 2017).

    `F` `[D]` is the importance of each weight to the clients of the last round, zero at first.

        step      w <- w - eta * (g(w) + mu * F * (w - w_t))
        client    F_i = mean over its local steps of g^2, element-wise, g without the proximal term
        server    F <- mean F_i

    F_i is the usual estimate of the Fisher information's diagonal by squared gradients, here of batches, since those
    are at hand: a batch of B samples makes it about B times smaller, which mu has to make up for. IMA names such a
    regulariser as future work; this form of it is ours. `mu = 0` is FedAvg.
    """

    mu: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strength("EWC.mu", self.mu)

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"fisher": zeros(w)}

    def round_state(self, local: LocalRun) -> Vectors:
        return {"squares": zeros(local.w)}

    def direction(self, step: Step) -> Tensor:
        g = step.grad(step.w)
        step.round_state["squares"].addcmul_(g, g)
        return torch.addcmul(g, step.server_state["fisher"], step.w - step.sent, value=self.mu)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta, "fisher": local.round_state["squares"] / local.steps}, {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"fisher": received.mean["fisher"]}
