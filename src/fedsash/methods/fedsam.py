"""Sharpness-aware local training: FedSAM, FedASAM, MoFedSAM, FedLESAM."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from ..settings.limits import Factor, Strength
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Weighting
from .fedcm import with_direction

TINY = 1e-16
"""Added to a norm before a division by it, as in the published codes."""


@dataclass(frozen=True)
class FedSAM(Method, name="fedsam"):
    """Clients minimise the largest loss within a distance rho (Qu et al. 2022, Caldarola et al. 2022).

        e = rho * g(w) / ||g(w)||,    w <- w - eta * g(w + e)

    Both gradients are of the same batch with the same dropout. The norm is over all that clients share. Weight decay
    is not part of e and acts at w.
    """

    rho: Strength = 0.1
    """the length of the perturbation e; 0 is FedAvg"""

    def direction(self, step: Step) -> Tensor:
        return _sharp_gradient(step, self.rho)


@dataclass(frozen=True)
class FedASAM(Method, name="fedasam"):
    """FedSAM with a distance that scales with the weights (Kwon et al. 2021; Caldarola et al. 2022).

        T = |w| + eta for weights, 1 for biases,    e = rho * T^2 * g / ||T * g||,    w <- w - eta_t * g(w + e)

    All operations but the norm are element-wise. Weights are parameters whose name contains "weight", including those
    of norm layers. The defaults are IMA's for its CNNs: its table prints rho = 0, its code has 0.7. For its other
    models they are rho = 0.2 and eta = 0.05.
    """

    rho: Strength = 0.7
    """the length of the perturbation"""

    eta: Strength = 0.2
    """the least scale of a weight"""

    def direction(self, step: Step) -> Tensor:
        scale = torch.where(step.layout.mask("weight", step.w.device), step.w.abs() + self.eta, 1.0)
        return _sharp_gradient(step, self.rho, scale)


@dataclass(frozen=True)
class MoFedSAM(Method, name="mofedsam"):
    """FedCM with FedSAM's gradient (Qu et al. 2022).

        e = rho * g(y) / ||g(y)||,    y <- y - eta * (alpha * g(y + e) + (1 - alpha) * Delta_t)

    `Delta` is FedCM's (see `fedcm`). The factor alpha before the gradient is the paper's; the copy in FedLESAM's code
    leaves it out. The paper's `weighting` is uniform.
    """

    alpha: Factor = 0.1
    """the share of the client's own gradient in a step; 1 is uniform FedSAM"""

    rho: Strength = 0.1
    """the length of the perturbation e; 0 is FedCM"""

    _: KW_ONLY
    weighting: Weighting = "uniform"

    @property
    def divides_updates(self) -> bool:
        return True

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"Delta": torch.zeros_like(w)}

    def direction(self, step: Step) -> Tensor:
        return torch.lerp(step.server_state["Delta"], _sharp_gradient(step, self.rho), self.alpha)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return with_direction(local), {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"Delta": received.mean["Delta"]}


@dataclass(frozen=True)
class FedLESAM(Method, name="fedlesam"):
    """SAM along the path of the global model, with one gradient in each step (Fan et al. 2024).

    `old_i` `[D]` is the model that client i received when it last took part.

        e_i = rho * (old_i - w_t) / ||old_i - w_t||,    w <- w - eta * g(w + e_i),    then old_i <- w_t

    e_i is the same in all steps of a round. It is 0 in the client's first round, and if the model has not moved. This
    is the paper's rule. Its published code uses the last global update for all clients, and does not align its entries
    with the parameters. `weighting` is uniform as in its code.
    """

    rho: Strength = 0.1
    """the length of the perturbation e_i; 0 is uniform FedAvg"""

    _: KW_ONLY
    weighting: Weighting = "uniform"

    def client_state(self, w: Tensor) -> Vectors:
        return {"old": torch.zeros_like(w), "known": torch.zeros_like(w[:1])}

    def round_state(self, local: LocalRun) -> Vectors:
        path = (local.client_state["old"] - local.sent) * local.client_state["known"]
        norm = torch.linalg.vector_norm(path, dim=1, keepdim=True)
        return {"e": path * (self.rho / (norm + TINY))}

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w + step.round_state["e"])

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        old = local.sent.expand_as(local.w).clone()
        known = torch.ones_like(local.client_state["known"])
        return {"delta": local.delta}, {"old": old, "known": known}


def _sharp_gradient(step: Step, rho: float, scale: Tensor | None = None) -> Tensor:
    """The gradient `[C, D]` at w + e, with e = rho * T^2 * g / ||T * g|| and T = `scale` (None: 1)."""
    g = step.grad(step.w)
    if rho == 0:
        return g
    if scale is None:
        e = g * _factor(rho, g)
    else:
        scaled = scale * g
        e = scale * scaled * _factor(rho, scaled)
    return step.grad(step.w + e)


def _factor(rho: float, g: Tensor) -> Tensor:
    """The factors `[C, 1]` that give the vectors g `[C, D]` the length rho."""
    norm: Tensor = torch.linalg.vector_norm(g, dim=1, keepdim=True)
    return rho / (norm + TINY)
