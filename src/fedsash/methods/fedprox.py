"""FedProx (Li et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings.limits import Strength
from .base import Method, Step


@dataclass(frozen=True)
class FedProx(Method, name="fedprox"):
    """FedAvg with a proximal term to the received model (Li et al. 2020).

    Each client minimises `f_i(w) + (mu/2) * ||w - w_t||^2`, so a step follows `g(w) + mu * (w - w_t)`. The local
    momentum includes the proximal term. The factor 1/2 is the paper's.
    """

    mu: Strength = 0.01
    """the factor of the proximal term; 0 is FedAvg"""

    @property
    def proximal(self) -> float:
        return self.mu

    def direction(self, step: Step) -> Tensor:
        return torch.add(step.grad(step.w), step.w - step.sent, alpha=self.mu)
