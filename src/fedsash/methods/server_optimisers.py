"""Server optimisers: how the clients' mean update moves the global model.

`sent` [D] is the model that the clients received, and `delta` [D] the mean of `w_local - sent`. So the server ADDS
`delta`; the pseudo-gradients in papers are `-delta`. A step always starts from `sent`, never from a model that the
server remembers. A server optimiser holds settings only. What it must remember is its state, a dictionary of tensors;
`step` returns a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import torch
from torch import Tensor

from ..settings.errors import check
from ..settings.limits import Fraction, Rate, Share, Strength
from ..settings.setting import Setting
from ..vector.arrays import Vectors
from ..vector.spaces import CommonPart, OptimiserState


class Server(Setting):
    """The base class of server optimisers."""

    def init(self, w: CommonPart) -> Vectors:
        """The state before the first step, for models like `w` [D]."""
        raise NotImplementedError

    def step(self, sent: CommonPart, delta: CommonPart, state: OptimiserState) -> tuple[Tensor, Vectors]:
        """The new global model [D] and the new state; the arguments are not changed."""
        raise NotImplementedError


@dataclass(frozen=True)
class ServerSGD(Server, name="sgd"):
    """Gradient descent with heavy-ball momentum: FedAvg, FedAvgM (Hsu et al. 2019), FedSWA's extrapolation by `lr`.

        v <- momentum * v + delta                  v_0 = 0
        w <- sent + lr * v

    `sent` `[D]` is the model that clients received, `delta` `[D]` the mean of their updates, and v `[D]`.

    The momentum is undamped, as in Flower and FedJAX: with a constant `delta` the step grows to
    `lr / (1 - momentum) * delta`. The defaults are FedAvg: `sent + delta`, without a state.
    """

    lr: Rate = 1.0
    """the length of the step; above 1 it extrapolates"""

    momentum: Fraction = 0.0
    """the share of the last step that goes on; 0 is FedAvg"""

    def init(self, w: Tensor) -> Vectors:
        if not self.momentum:
            return {}
        return {"v": torch.zeros_like(w)}

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        if not self.momentum:
            return torch.add(sent, delta, alpha=self.lr), state
        v = self.momentum * state["v"] + delta
        return torch.add(sent, v, alpha=self.lr), {"v": v}


@dataclass(frozen=True)
class FedAdagrad(Server, name="adagrad"):
    """FedAdagrad: steps divided by the root of the summed squared updates (Reddi et al. 2021, Algorithm 2).

        m <- beta1 * m + (1 - beta1) * delta       m_0 = 0
        v <- v + delta^2                           v_0 = initial_v
        w <- sent + lr * m / (sqrt(v) + tau)       element-wise

    With `beta1 = 0`, the default, m is delta.
    """

    lr: Rate = 0.1
    """the server's learning rate"""

    beta1: Fraction = 0.0
    """the share of the moment m that is kept in a step"""

    tau: Strength = 1e-3
    """what keeps the divisor above 0"""

    initial_v: Strength = 0.0
    """v before the first step; 0 in the published experiments, while the paper's text asks for `tau**2` or more"""

    def __post_init__(self) -> None:
        _check_adaptive(self)

    def init(self, w: Tensor) -> Vectors:
        return _moments(w, self.initial_v)

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = state["v"] + delta.square()
        return sent + self.lr * m / (v.sqrt() + self.tau), {"m": m, "v": v}


@dataclass(frozen=True)
class FedAdam(Server, name="adam"):
    """FedAdam: steps divided by the root of the mean squared updates (Reddi et al. 2021, Algorithm 2).

        m <- beta1 * m + (1 - beta1) * delta       m_0 = 0
        v <- beta2 * v + (1 - beta2) * delta^2     v_0 = initial_v
        w <- sent + lr * b * m / (sqrt(v) + tau)   element-wise

    `sent` `[D]` is the model that clients received, `delta` `[D]` the mean of their updates; m and v are `[D]`.

    The defaults are IMA's (Table 5). Sources differ in `initial_v`, and in `bias_correction`, which gives the factor b
    in step n = 1, 2, ...:

    - "none" (the paper's text, FedIMA): b = 1;
    - "keras" (the original experiments): b = sqrt(1 - beta2^n) / (1 - beta1^n);
    - "flower" (its recent releases): the same with n + 1 in place of n;
    - "both" corrects both moments, m / (1 - beta1^n) and v / (1 - beta2^n), as Adam's own paper and PyTorch do; this is
      "keras" with tau * sqrt(1 - beta2^n) for tau. The others do not correct tau.
    """

    lr: Rate = 0.01
    """the server's learning rate"""

    beta1: Fraction = 0.9
    """the share of the moment m that is kept in a step"""

    beta2: Share = 0.99
    """the share of the moment v that is kept in a step; at 1, v stays at `initial_v`"""

    tau: Strength = 1e-3
    """what keeps the divisor above 0"""

    initial_v: Strength = 0.0
    """v before the first step; 0 in the published experiments, in FedIMA and in Flower, while the paper's text asks for
    `tau**2` or more"""

    bias_correction: Literal["none", "keras", "flower", "both"] = "none"
    """how the moments are corrected for their start: "none", not at all, as in the paper's text; "keras", as in the
    original experiments; "flower", as in its recent releases; "both", each by itself, as in Adam's own paper"""

    def __post_init__(self) -> None:
        _check_adaptive(self)
        requirement = "must be below 1 to correct the moments"
        check(self.bias_correction == "none" or self.beta2 < 1, "FedAdam.beta2", self.beta2, requirement)

    def init(self, w: Tensor) -> Vectors:
        state = _moments(w, self.initial_v)
        if self.bias_correction != "none":
            state["steps"] = torch.zeros((), dtype=torch.int64)
        return state

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = self.beta2 * state["v"] + (1 - self.beta2) * delta.square()
        new_state = {"m": m, "v": v}
        lr = self.lr
        tau = self.tau
        if self.bias_correction != "none":
            new_state["steps"] = state["steps"] + 1
            n = int(new_state["steps"])
            if self.bias_correction == "flower":
                n += 1
            root = sqrt(1 - self.beta2**n)
            lr *= root / (1 - self.beta1**n)
            if self.bias_correction == "both":
                tau *= root
        return sent + lr * m / (v.sqrt() + tau), new_state


@dataclass(frozen=True)
class FedYogi(Server, name="yogi"):
    """FedYogi: Adam with bounded changes of v (Reddi et al. 2021, Algorithm 2).

        m <- beta1 * m + (1 - beta1) * delta                        m_0 = 0
        v <- v - (1 - beta2) * delta^2 * sign(v - delta^2)          v_0 = initial_v
        w <- sent + lr * m / (sqrt(v) + tau)                        element-wise

    The defaults are IMA's (Table 5).
    """

    lr: Rate = 0.01
    """the server's learning rate"""

    beta1: Fraction = 0.9
    """the share of the moment m that is kept in a step"""

    beta2: Share = 0.99
    """1 minus the share of an update's square by which v changes in a step; at 1, v stays at `initial_v`"""

    tau: Strength = 1e-3
    """what keeps the divisor above 0"""

    initial_v: Strength = 0.0
    """v before the first step; 0 in the published experiments, while the paper's text asks for `tau**2` or more. From 0
    the first step is that of FedAdam"""

    def __post_init__(self) -> None:
        _check_adaptive(self)

    def init(self, w: Tensor) -> Vectors:
        return _moments(w, self.initial_v)

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        square = delta.square()
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = state["v"] - (1 - self.beta2) * square * (state["v"] - square).sign()
        return sent + self.lr * m / (v.sqrt() + self.tau), {"m": m, "v": v}


SERVERS = Server.by_name


def _moments(w: Tensor, initial_v: float) -> Vectors:
    return {"m": torch.zeros_like(w), "v": torch.full_like(w, initial_v)}


def _check_adaptive(server: FedAdagrad | FedAdam | FedYogi) -> None:
    """Raise `SettingError` if a divisor sqrt(v) + tau may be 0."""
    requirement = "must be above 0, or 0 if initial_v is above 0"
    v_stays_positive = server.initial_v > 0
    if isinstance(server, FedAdam) and server.beta2 < 1:  # v decays to 0 where an update stays 0
        requirement += " and beta2 = 1"
        v_stays_positive = False
    check(server.tau > 0 or v_stays_positive, f"{type(server).__name__}.tau", server.tau, requirement)
