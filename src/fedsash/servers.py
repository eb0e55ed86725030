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

from .basics.arrays import Vectors, check_like
from .basics.sharing import Sharing
from .settings.errors import check
from .settings.limits import Fraction, Rate, Strength
from .settings.setting import Setting


class Server(Setting):
    """The base class of server optimisers. Settings that several of them have:

    - `lr`: the server's learning rate
    - `beta1`, `beta2`: the shares of the moments m and v that are kept in a step
    - `tau`: what keeps the divisor above 0
    """

    def init(self, w: Tensor) -> Vectors:
        """The state before the first step, for models like `w` [D]."""
        raise NotImplementedError

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        """The new global model [D] and the new state; the arguments are not changed."""
        raise NotImplementedError


@dataclass(frozen=True)
class ServerSGD(Server, name="sgd"):
    """Gradient descent with heavy-ball momentum: FedAvg, FedAvgM (Hsu et al. 2019), FedSWA's extrapolation by `lr`.

        v <- momentum * v + delta                  v_0 = 0
        w <- sent + lr * v

    The momentum is undamped, as in Flower and FedJAX: with a constant `delta` the step grows to
    `lr / (1 - momentum) * delta`. The defaults are FedAvg: `sent + delta`, without a state.

    - `lr`: the length of the step; above 1 it extrapolates
    - `momentum`: the share of the last step that goes on; 0 is FedAvg
    """

    lr: Rate = 1.0
    momentum: Fraction = 0.0

    def init(self, w: Tensor) -> Vectors:
        return {"v": torch.zeros_like(w)} if self.momentum else {}

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

    `initial_v = 0` as in the published experiments; the paper's text asks for `tau**2` or more.
    """

    lr: Rate = 0.1
    beta1: Fraction = 0.0
    tau: Strength = 1e-3
    initial_v: Strength = 0.0

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

    The defaults are IMA's (Table 5). Sources differ in two settings:

    - `initial_v`: 0 in the published experiments, in FedIMA and in Flower; the paper's text asks for `tau**2` or more;
    - `bias_correction`, the factor b in step n = 1, 2, ...: with "none" (the paper's text, FedIMA) b = 1; with "keras"
      (the original experiments) b = sqrt(1 - beta2^n) / (1 - beta1^n); with "flower" (its recent releases) the same
      with n + 1 in place of n. tau is not corrected. "both" corrects both moments, m / (1 - beta1^n) and
      v / (1 - beta2^n), as Adam's own paper and PyTorch do; this is "keras" with tau * sqrt(1 - beta2^n) for tau.
    """

    lr: Rate = 0.01
    beta1: Fraction = 0.9
    beta2: float = 0.99
    tau: Strength = 1e-3
    initial_v: Strength = 0.0
    bias_correction: Literal["none", "keras", "flower", "both"] = "none"

    def __post_init__(self) -> None:
        _check_adaptive(self)
        _check_beta2("FedAdam", self.beta2)
        right = "must be below 1 to correct the moments"
        check(self.bias_correction == "none" or self.beta2 < 1, "FedAdam.beta2", self.beta2, right)

    def init(self, w: Tensor) -> Vectors:
        steps = {} if self.bias_correction == "none" else {"steps": torch.zeros((), dtype=torch.int64)}
        return _moments(w, self.initial_v) | steps

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = self.beta2 * state["v"] + (1 - self.beta2) * delta.square()
        new = {"m": m, "v": v}
        lr, tau = self.lr, self.tau
        if self.bias_correction != "none":
            new["steps"] = state["steps"] + 1
            n = int(new["steps"]) + (self.bias_correction == "flower")
            root = sqrt(1 - self.beta2**n)
            lr *= root / (1 - self.beta1**n)
            tau *= root if self.bias_correction == "both" else 1
        return sent + lr * m / (v.sqrt() + tau), new


@dataclass(frozen=True)
class FedYogi(Server, name="yogi"):
    """FedYogi: Adam with bounded changes of v (Reddi et al. 2021, Algorithm 2).

        m <- beta1 * m + (1 - beta1) * delta                        m_0 = 0
        v <- v - (1 - beta2) * delta^2 * sign(v - delta^2)          v_0 = initial_v
        w <- sent + lr * m / (sqrt(v) + tau)                        element-wise

    The defaults are IMA's (Table 5). `initial_v = 0` as in the published experiments; the first step is then that of
    FedAdam. The paper's text asks for `tau**2` or more.
    """

    lr: Rate = 0.01
    beta1: Fraction = 0.9
    beta2: float = 0.99
    tau: Strength = 1e-3
    initial_v: Strength = 0.0

    def __post_init__(self) -> None:
        _check_adaptive(self)
        _check_beta2("FedYogi", self.beta2)

    def init(self, w: Tensor) -> Vectors:
        return _moments(w, self.initial_v)

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        square = delta.square()
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = state["v"] - (1 - self.beta2) * square * (state["v"] - square).sign()
        return sent + self.lr * m / (v.sqrt() + self.tau), {"m": m, "v": v}


@dataclass(frozen=True)
class WholeServer(Server):
    """Moves the common parameters of whole models by `server`, and adds the update to the other entries."""

    server: Server
    sharing: Sharing

    def init(self, w: Tensor) -> Vectors:
        return self.server.init(self.sharing.common_of(w))

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        if self.sharing.whole:
            return self._checked(sent, delta, state)
        common, state = self._checked(self.sharing.common_of(sent), self.sharing.common_of(delta), state)
        return self.sharing.with_common(common, sent + delta), state

    def _checked(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        """The server's step; raises `SettingError` unless its model and its state are like those before."""
        w, after = self.server.step(sent, delta, state)
        check_like(self.server, "step: the model", w, sent)
        for name in state.keys() & after.keys():
            check_like(self.server, f"step: {name}", after[name], state[name])
        return w, after


SERVERS = Server.by_name


def _moments(w: Tensor, initial_v: float) -> Vectors:
    return {"m": torch.zeros_like(w), "v": torch.full_like(w, initial_v)}


def _check_beta2(server: str, beta2: float) -> None:
    check(0 <= beta2 <= 1, f"{server}.beta2", beta2, "must be between 0 and 1 (at 1, v stays at initial_v)")


def _check_adaptive(server: FedAdagrad | FedAdam | FedYogi) -> None:
    name = type(server).__name__
    decays = isinstance(server, FedAdam) and server.beta2 < 1  # where an update stays 0, v does in the end
    right = f"must be above 0, or 0 if initial_v is above 0{' and beta2 = 1' if decays else ''}"
    check(server.tau > 0 or (server.tau == 0 and server.initial_v > 0 and not decays), f"{name}.tau", server.tau, right)
