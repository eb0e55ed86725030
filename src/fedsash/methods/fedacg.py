"""FedACG (Kim et al. 2022): clients start from a point ahead of the model, along the global momentum."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from ..settings.limits import Fraction, Strength
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import Method, RoundMean, Step, Weighting


@dataclass(frozen=True)
class FedACG(Method, name="fedacg"):
    """Clients start one momentum step ahead; a proximal term keeps them near that point (Kim et al. 2022).

    The server's momentum `m` `[D]` is zero at first.

        sent      a = w_t + lam * m_t
        step      w <- w - eta * (g(w) + beta * (w - a))
        server    m_{t+1} = lam * m_t + mean (w_i - a),    w_{t+1} = w_t + m_{t+1} = mean w_i

    The proximal term is the gradient of (beta/2) * ||w - a||^2. The published code leaves out the 1/2, so its 1e-3 is
    `beta = 0.002` here. The paper's `weighting` is uniform.
    """

    lam: Fraction = 0.85
    """the share of the server's momentum that a round keeps, by which clients also start ahead; the paper's lambda"""

    beta: Strength = 0.001
    """the factor of the proximal term"""

    _: KW_ONLY
    weighting: Weighting = "uniform"

    @property
    def proximal(self) -> float:
        return self.beta

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"m": torch.zeros_like(w)}

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        return w + self.lam * server_state["m"], {}

    def direction(self, step: Step) -> Tensor:
        return torch.add(step.grad(step.w), step.w - step.sent, alpha=self.beta)

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"m": self.lam * received.server_state["m"] + received.update}
