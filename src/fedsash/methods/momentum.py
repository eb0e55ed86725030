"""Momentum of the server in the clients' steps: FedCM, FedACG, Mime, MimeLite."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.errors import check, check_strength
from ..basics.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Weighting, zeros


@dataclass(frozen=True)
class FedCM(Method):
    """Client momentum: each step mixes in the last round's global direction (Xu et al. 2021).

    `Delta` `[D]`, in units of a gradient, is zero at first; K_i is the number of the client's steps and eta its rate.

        step      y <- y - eta * (alpha * g(y) + (1 - alpha) * Delta_t)
        server    Delta_{t+1} = mean of (x_t - y_i) / (K_i * eta),    x_{t+1} = mean y_i

    K_i * eta is the sum of the rates that the client used, of this round and its own (published codes take one K for
    all, and one the next round's rate). Round 0 has no Delta: its steps are alpha times as long. Weight decay stands
    outside the mixture and is part of Delta. `alpha = 1` is uniform FedAvg; the paper's `weighting` is uniform.
    """

    alpha: float = 0.1
    _: KW_ONLY
    weighting: Weighting = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha("FedCM", self.alpha)

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"Delta": zeros(w)}

    def direction(self, step: Step) -> Tensor:
        return torch.lerp(step.server_state["Delta"], step.grad(step.w), self.alpha)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return with_direction(local), {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"Delta": received.mean["Delta"]}


@dataclass(frozen=True)
class FedACG(Method):
    """A look-ahead along the global momentum, and a proximal to it (Kim et al. 2022).

    The server's momentum `m` `[D]` is zero at first.

        sent      a = w_t + lam * m_t
        step      w <- w - eta * (g(w) + beta * (w - a))
        server    m_{t+1} = lam * m_t + mean (w_i - a),    w_{t+1} = w_t + m_{t+1} = mean w_i

    The proximal is the gradient of (beta/2) * ||w - a||^2; the published code leaves out the 1/2, so its 1e-3 is
    `beta = 0.002` here. `lam` is the paper's lambda. The paper's `weighting` is uniform.
    """

    lam: float = 0.85
    beta: float = 0.001
    _: KW_ONLY
    weighting: Weighting = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.lam < 1, "FedACG.lam", self.lam, "must be in [0, 1)")
        check_strength("FedACG.beta", self.beta)

    @property
    def proximal(self) -> float:
        return self.beta

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"m": zeros(w)}

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        return w + self.lam * server_state["m"], {}

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w).add(step.w - step.sent, alpha=self.beta)

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"m": self.lam * received.server_state["m"] + received.update}


@dataclass(frozen=True)
class Mime(Method):
    """Clients imitate the central optimiser: frozen momentum and a variance correction (Karimireddy et al. 2021).

    Before the training every client of the round sends grad f_i(x), over all its samples; `c` is their mean. The
    server's momentum `m` `[D]` is zero at first and frozen during a round.

        step      g = g_i(y; z) - g_i(x; z) + c             both on the same batch z, with the same dropout
                  y <- y - eta * ((1 - beta) * g + beta * m)
        server    x <- x + eta_s * mean (y_i - x),    m <- beta * m + (1 - beta) * c

    `beta = 0` is Mime-ServerSGD, without m. `damped = False` leaves the factors (1 - beta) out, as FedJAX does: its
    steps are 1/(1 - beta) times as long in the long run. Weight decay is added to the step and is in neither c nor m.
    The paper's `weighting` is uniform, FedJAX's is by samples; it concerns c as well.
    """

    beta: float = 0.9
    damped: bool = True
    _: KW_ONLY
    weighting: Weighting = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.beta < 1, "Mime.beta", self.beta, "must be in [0, 1)")

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"m": zeros(w)} if self.beta else {}

    def probe(self, local: LocalRun) -> Upload:
        return {"c": local.full_grad(local.w)}

    def direction(self, step: Step) -> Tensor:
        g = step.grad(step.w) - step.grad(step.sent.expand_as(step.w)) + step.server_state["c"]
        return _mix(g, step.server_state["m"], self.beta, self.damped) if self.beta else g

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        server_state = received.server_state
        m = {"m": _mix(server_state["c"], server_state["m"], self.beta, self.damped)} if self.beta else {}
        return received.update, m


@dataclass(frozen=True)
class MimeLite(Method):
    """Mime without the variance correction: frozen momentum only (Karimireddy et al. 2021).

        step      y <- y - eta * ((1 - beta) * g_i(y) + beta * m)
        server    x <- x + eta_s * mean (y_i - x),    m <- beta * m + (1 - beta) * mean grad f_i(x)

    grad f_i(x) is over all of the client's samples at the received model. `beta = 0` is MimeLite-ServerSGD, which is
    FedAvg. `damped`, `weighting` and weight decay as in `mime`.
    """

    beta: float = 0.9
    damped: bool = True
    _: KW_ONLY
    weighting: Weighting = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.beta < 1, "MimeLite.beta", self.beta, "must be in [0, 1)")

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"m": zeros(w)} if self.beta else {}

    def direction(self, step: Step) -> Tensor:
        g = step.grad(step.w)
        return _mix(g, step.server_state["m"], self.beta, self.damped) if self.beta else g

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        upload = {"delta": local.delta}
        return upload | ({"grad": local.full_grad(local.sent.expand_as(local.w))} if self.beta else {}), {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        mean, server_state = received.mean, received.server_state
        return received.update, {
            "m": _mix(mean["grad"], server_state["m"], self.beta, self.damped)
        } if self.beta else {}


def with_direction(local: LocalRun) -> Upload:
    """The client's update, and as `"Delta"` its mean direction, in units of a gradient."""
    return {"delta": local.delta, "Delta": local.direction}


def check_alpha(method: str, alpha: float) -> None:
    """Raise `ValueError` unless `alpha` is a share of the clients' own gradient."""
    check(0 < alpha <= 1, f"{method}.alpha", alpha, "must be above 0 and at most 1")


def _mix(g: Tensor, m: Tensor, beta: float, damped: bool) -> Tensor:
    """The momentum `m` mixed with a gradient, damped or not."""
    return torch.lerp(g, m, beta) if damped else torch.add(g, m, alpha=beta)
