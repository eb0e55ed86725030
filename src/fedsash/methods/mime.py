"""Mime and MimeLite (Karimireddy et al. 2021): clients imitate the central optimiser."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from ..settings.limits import Fraction
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Weighting

CENTRAL = "the method's steps are those of the central optimiser, whose moments are frozen during a round"
"""Why Mime and MimeLite need SGD at the clients."""


@dataclass(frozen=True)
class Mime(Method, name="mime"):
    """Clients imitate the central optimiser: frozen momentum and a variance correction (Karimireddy et al. 2021).

    Before the training every client of the round sends grad f_i(x), over all its samples; `c` `[D]` is their mean. The
    server's momentum `m` `[D]` is zero at first and does not change during a round.

        step      g = g_i(y; z) - g_i(x; z) + c             both on the same batch z, with the same dropout
                  y <- y - eta * ((1 - beta) * g + beta * m)
        server    x <- x + eta_s * mean (y_i - x),    m <- beta * m + (1 - beta) * c

    Weight decay is added to the step and is in neither c nor m.
    """

    beta: Fraction = 0.9
    """the factor of the momentum m in a step, and of the old m in the new one; 0 is Mime-SGD, without m"""

    damped: bool = True
    """whether steps and momentum have the factors (1 - beta). Without them, as in FedJAX, steps are 1/(1 - beta) times
    as long in the long run"""

    _: KW_ONLY
    weighting: Weighting = "uniform"
    """how the clients' models and their gradients, of which c is made, are averaged: "uniform", as in the paper;
    "samples", by numbers of samples, as in FedJAX"""

    @property
    def why_sgd(self) -> str:
        return CENTRAL

    @property
    def full_gradients(self) -> bool:
        return True

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return _first_momentum(w, self.beta)

    def probe(self, local: LocalRun) -> Upload:
        return {"c": local.full_grad(local.w)}

    def direction(self, step: Step) -> Tensor:
        g = step.grad(step.w) - step.grad_at_sent() + step.server_state["c"]
        return _with_momentum(g, step.server_state, self.beta, self.damped)

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        server_state = received.server_state
        if self.beta == 0:
            return received.update, {}
        m = _with_momentum(server_state["c"], server_state, self.beta, self.damped)
        return received.update, {"m": m}


@dataclass(frozen=True)
class MimeLite(Method, name="mimelite"):
    """Mime without the variance correction: frozen momentum only (Karimireddy et al. 2021).

        step      y <- y - eta * ((1 - beta) * g_i(y) + beta * m)
        server    x <- x + eta_s * mean (y_i - x),    m <- beta * m + (1 - beta) * mean grad f_i(x)

    grad f_i(x) is over all of the client's samples at the received model. Weight decay is added to
    the step and is not in m, as in `mime`.
    """

    beta: Fraction = 0.9
    """the factor of the momentum m in a step, and of the old m in the new one; 0 is MimeLite-SGD, which is
    FedAvg"""

    damped: bool = True
    """whether steps and momentum have the factors (1 - beta). Without them, as in FedJAX, steps are 1/(1 - beta) times
    as long in the long run"""

    _: KW_ONLY
    weighting: Weighting = "uniform"
    """how the clients' models and their gradients, of which m is made, are averaged: "uniform", as in the paper;
    "samples", by numbers of samples, as in FedJAX"""

    @property
    def why_sgd(self) -> str:
        return CENTRAL

    @property
    def full_gradients(self) -> bool:
        return self.beta > 0

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return _first_momentum(w, self.beta)

    def direction(self, step: Step) -> Tensor:
        return _with_momentum(step.grad(step.w), step.server_state, self.beta, self.damped)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        upload = {"delta": local.delta}
        if self.beta > 0:
            upload["grad"] = local.full_grad(local.sent.expand_as(local.w))
        return upload, {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        if self.beta == 0:
            return received.update, {}
        m = _with_momentum(received.mean["grad"], received.server_state, self.beta, self.damped)
        return received.update, {"m": m}


def _first_momentum(w: Tensor, beta: float) -> Vectors:
    """The server state: the momentum m `[D]`, which is 0 at first; none if its factor `beta` is 0."""
    return {"m": torch.zeros_like(w)} if beta else {}


def _with_momentum(g: Tensor, server_state: Vectors, beta: float, damped: bool) -> Tensor:
    """A gradient mixed with the server's momentum m, if there is one; vectors `[D]` or `[C, D]`.

    `(1 - beta) * g + beta * m`, or `g + beta * m` if not `damped`.
    """
    if "m" not in server_state:
        return g
    m = server_state["m"]
    if damped:
        return torch.lerp(g, m, beta)
    return torch.add(g, m, alpha=beta)
