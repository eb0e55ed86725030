"""SCAFFOLD (Karimireddy et al. 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from torch import Tensor

from .base import Local, Method, Step, Upload, Vectors, zeros


@dataclass(frozen=True)
class Scaffold(Method):
    """Control variates against client drift (Karimireddy et al. 2020).

    Symbols: `x` the received model, `y` a client's model, `c` the server's and `c_i` a client's control variate (all
    `[D]`, zero at first), K_i the client's steps, eta its rate.

        step        y <- y - eta * (g_i(y) - c_i + c)
        option II   c_i+ = c_i - c + (x - y) / (K_i * eta)
        option I    c_i+ = grad f_i(x), over all of the client's samples
        server      x <- x + eta_s * mean(y - x),   c <- c + (1/N) * sum over the round's clients of (c_i+ - c_i)

    so that `c` is the mean of all N `c_i` after every round. Where the rate moves within a round, K_i * eta is the
    sum of the rates used. Option II is the paper's choice for its experiments and the default; with local momentum
    (x - y) / (K_i * eta) overstates the mean gradient by up to 1/(1-m), and with weight decay it contains the decay:
    option I has neither. `weighting` concerns the model only; the paper's is uniform.
    """

    option: Literal["I", "II"] = "II"
    _: KW_ONLY
    weighting: Literal["samples", "uniform"] = "uniform"
    uniform: ClassVar[tuple[str, ...]] = ("c",)

    def shared(self, w: Tensor) -> Vectors:
        return {"c": zeros(w)}

    def mine(self, w: Tensor) -> Vectors:
        return {"c": zeros(w)}

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) - step.mine["c"] + step.shared["c"]

    def finish(self, local: Local) -> tuple[Upload, Vectors]:
        if self.option == "I":
            c = local.full_grad(local.sent.expand_as(local.w))
        else:
            c = local.mine["c"] - local.shared["c"] + (local.sent - local.w) / local.lr_sum
        return {"delta": local.w - local.sent, "c": c - local.mine["c"]}, {"c": c}

    def absorb(self, shared: Vectors, mean: Vectors, fraction: float) -> Vectors:
        return {"c": shared["c"] + fraction * mean["c"]}
