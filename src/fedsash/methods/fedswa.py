"""FedSWA and FedMoSWA (Liu et al. 2025)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..settings.limits import Share, Strength
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Weighting
from .scaffold import OPTION_II, corrected, variate, variates
from .schedules import LocalSchedule, SawTooth


@dataclass(frozen=True)
class FedSWA(Method, name="fedswa"):
    """Saw-tooth local learning rates and an extrapolating server step (Liu et al. 2025).

        step      w <- w - eta_k * g(w),    eta_k = eta * (1 - k/K + (k/K) * rho),    k = 0..K-1 in every round
        server    w_{t+1} = w_t + alpha * mean (w_i - w_t)

    FedAvg does the same with `local_schedule = {name = "sawtooth", rho = ...}` and the server optimiser ServerSGD with
    `lr = alpha`. Here a `local_schedule` of the clients comes on top. The later version of the published code has
    rho = 0 and twice the learning rate. The values of the published table are unknown; the defaults are those that the
    paper is said to use. `rho = alpha = 1` is uniform FedAvg. The paper's `weighting` is uniform.
    """

    rho: Strength = 0.1
    """the share of the rate that is left at the end of a client's steps"""

    alpha: Strength = 1.5
    """the length of the server's step; above 1 it extrapolates"""

    _: KW_ONLY
    weighting: Weighting = "uniform"

    @property
    def local_schedule(self) -> LocalSchedule:
        return SawTooth(self.rho)

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return self.alpha * received.update, received.server_state


@dataclass(frozen=True)
class FedMoSWA(Method, name="fedmoswa"):
    """FedSWA with control variates; their running mean is a momentum (Liu et al. 2025).

    The server's `m` and a client's `c_i` are `[D]`, zero at first. eta_k is FedSWA's rate.

        step        w <- w - eta_k * (g(w) - c_i + m)
        option II   c_i+ = c_i - m + (w_t - w_i) / sum_k eta_k
        option I    c_i+ = grad f_i(w_t), over all of the client's samples
        raw         c_i+ = sum_k eta_k * g_k / sum_k eta_k,    g_k = g(w) in step k
        server      w_{t+1} = w_t + alpha * mean (w_i - w_t),    m <- m + gamma * mean (c_i+ - m)

    With local momentum option II divides by the weights of the steps, as SCAFFOLD does (`LocalRun.reach`). The mean of
    the variates is over the round's clients (SCAFFOLD's is over all N). This is the paper's Algorithm 1,
    whose option I has the gradient of one mini-batch in place of all samples; both published versions of its code
    differ from it. With rho = alpha = gamma = 1 and all clients it is SCAFFOLD (which compares the options).
    """

    rho: Strength = 0.1
    """the share of the rate that is left at the end of a client's steps, as in FedSWA"""

    alpha: Strength = 1.5
    """the length of the server's step, as in FedSWA; above 1 it extrapolates"""

    gamma: Share = 0.2
    """the share of the running mean m that a round renews"""

    option: Literal["I", "II", "raw"] = "II"
    """how a client's variate is made: "I", from the gradient over all its samples at the received model; "II", from its
    update; "raw", from the gradients of its steps"""

    _: KW_ONLY
    weighting: Weighting = "uniform"
    """how the clients' updates are averaged: "uniform", as in the paper; "samples", by numbers of samples, which
    affects the model only, not m"""

    uniform: ClassVar[tuple[str, ...]] = ("c",)

    @property
    def local_schedule(self) -> LocalSchedule:
        return SawTooth(self.rho)

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
        return {"m": torch.zeros_like(w)}

    def client_state(self, w: Tensor) -> Vectors:
        return {"c": torch.zeros_like(w)}

    def round_state(self, local: LocalRun) -> Vectors:
        return variates(local, local.server_state["m"], self.option)

    def direction(self, step: Step) -> Tensor:
        return corrected(step)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        c = variate(local, self.option)
        return {"delta": local.delta, "c": c - local.server_state["m"]}, {"c": c}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        m = received.server_state["m"] + self.gamma * received.mean["c"]
        return self.alpha * received.update, {"m": m}
