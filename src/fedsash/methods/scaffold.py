"""SCAFFOLD (Karimireddy et al. 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import MEAN_DIRECTION, LocalRun, Method, RoundMean, Step, Upload, Weighting

OPTION_II = f'{MEAN_DIRECTION}; option = "I" and option = "raw" take any optimiser'
"""Why option II needs SGD."""


@dataclass(frozen=True)
class Scaffold(Method, name="scaffold"):
    """Control variates against client drift (Karimireddy et al. 2020).

    `x` is the received model, `y` a client's model, `c` the server's and `c_i` a client's control variate; all are
    `[D]`, and the variates are zero at first. K_i is the number of the client's steps, eta its rate.

        step        y <- y - eta * (g_i(y) - c_i + c)
        option II   c_i+ = c_i - c + (x - y) / (K_i * eta)
        raw         c_i+ = mean of the gradients g_i(y) in its steps
        option I    c_i+ = grad f_i(x), over all of the client's samples
        server      x <- x + eta_s * mean(y - x),   c <- c + (1/N) * sum over the round's clients of (c_i+ - c_i)

    So `c` is the mean of all N `c_i` after every round. If the rate moves within a round, K_i * eta is the sum of the
    rates, and the mean is weighted by the rates. Option II is the default and the paper's choice for its experiments.
    With local momentum its K_i * eta is the sum of the weights with which steps enter the update (`LocalRun.reach`);
    with weight decay it contains the decay, and it needs SGD. Option I and the raw gradients have none of these
    effects. For plain SGD "raw" equals option II.
    """

    option: Literal["I", "II", "raw"] = "II"
    """how a client's variate is made: "I", from the gradient over all its samples at the received model; "II", from its
    update; "raw", from the gradients of its steps"""

    _: KW_ONLY
    weighting: Weighting = "uniform"
    """how the clients' models are averaged: "uniform", as in the paper; "samples", by numbers of samples, which affects
    the model only, not c"""

    uniform: ClassVar[tuple[str, ...]] = ("c",)

    @property
    def divides_updates(self) -> bool:
        return self.option == "II"

    @property
    def why_sgd(self) -> str:
        return OPTION_II if self.divides_updates else ""

    @property
    def full_gradients(self) -> bool:
        return self.option == "I"

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"c": torch.zeros_like(w)}

    def client_state(self, w: Tensor) -> Vectors:
        return {"c": torch.zeros_like(w)}

    def round_state(self, local: LocalRun) -> Vectors:
        return variates(local, local.server_state["c"], self.option)

    def direction(self, step: Step) -> Tensor:
        return corrected(step)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        c = variate(local, self.option)
        return {"delta": local.delta, "c": c - local.client_state["c"]}, {"c": c}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        share = received.clients / received.total
        return received.update, {"c": received.server_state["c"] + share * received.mean["c"]}


def variates(local: LocalRun, c: Tensor, option: str) -> Vectors:
    """The round state: the correction c - c_i of every step, and with "raw" a sum of the gradients."""
    state = {"correction": c - local.client_state["c"]}
    if option == "raw":
        state["raw"] = torch.zeros_like(local.w)
    return state


def corrected(step: Step) -> Tensor:
    """The gradient `[C, D]` with the correction; with "raw" it is added to the sum of the gradients."""
    g = step.grad(step.w)
    if "raw" in step.round_state:
        step.round_state["raw"] += step.lr * g
    return g + step.round_state["correction"]


def variate(local: LocalRun, option: str) -> Tensor:
    """The clients' new variates c_i+ `[C, D]`.

    Option I: the gradient at the received model. Option II: the mean direction of the local steps, without the
    correction that it contains. Raw: the mean of the gradients in the local steps. In a round at rate 0 nothing moves,
    and both stay.
    """
    match option:
        case "I":
            return local.full_grad(local.sent.expand_as(local.w))
        case "raw":
            c = local.mean(local.round_state["raw"])
        case _:
            c = local.direction - local.round_state["correction"]
    return torch.where(local.lr_sum > 0, c, local.client_state["c"])
