"""SCAFFOLD (Karimireddy et al. 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Weighting, zeros


@dataclass(frozen=True)
class Scaffold(Method):
    """Control variates against client drift (Karimireddy et al. 2020).

    `x` is the received model, `y` a client's model, `c` the server's and `c_i` a client's control variate; all are
    `[D]`, and the variates are zero at first. K_i is the number of the client's steps, eta its rate.

        step        y <- y - eta * (g_i(y) - c_i + c)
        option II   c_i+ = c_i - c + (x - y) / (K_i * eta)
        option I    c_i+ = grad f_i(x), over all of the client's samples
        server      x <- x + eta_s * mean(y - x),   c <- c + (1/N) * sum over the round's clients of (c_i+ - c_i)

    So `c` is the mean of all N `c_i` after every round. If the rate moves within a round, K_i * eta is the sum of the
    rates. Option II is the default and the paper's choice for its experiments. With local momentum m its
    (x - y) / (K_i * eta) is up to 1/(1-m) times the mean gradient, and with weight decay it contains the decay.
    Option I has neither effect. `weighting` affects the model only; the paper's is uniform.
    """

    option: Literal["I", "II"] = "II"
    _: KW_ONLY
    weighting: Weighting = "uniform"
    uniform: ClassVar[tuple[str, ...]] = ("c",)

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"c": zeros(w)}

    def client_state(self, w: Tensor) -> Vectors:
        return {"c": zeros(w)}

    def round_state(self, local: LocalRun) -> Vectors:
        return {"correction": local.server_state["c"] - local.client_state["c"]}

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) + step.round_state["correction"]

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        c = variate(local, self.option)
        return {"delta": local.delta, "c": c - local.client_state["c"]}, {"c": c}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        share = received.clients / received.total
        return received.update, {"c": received.server_state["c"] + share * received.mean["c"]}


def variate(local: LocalRun, option: str) -> Tensor:
    """The clients' new variates c_i+ `[C, D]`.

    Option I: the gradient at the received model. Option II: the mean direction of the local steps, without the
    correction c - c_i (`local.round_state["correction"]`) that it contains.
    """
    if option == "I":
        return local.full_grad(local.sent.expand_as(local.w))
    return local.direction - local.round_state["correction"]
