"""Dynamic regularisation: FedDyn (Acar et al. 2021) and AdaBest (Varno et al. 2022)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..settings.limits import Rate, Strength
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload, Weighting


@dataclass(frozen=True)
class FedDyn(Method, name="feddyn"):
    """A regulariser that makes the clients' optima agree with the global one (Acar et al. 2021).

    Each client minimises `f_i(w) - <g_i, w> + (alpha/2) * ||w - w_t||^2`. Its `g_i` and the server's `h` are `[D]`,
    zero at first.

        step      w <- w - eta * (g(w) - g_i + alpha * (w - w_t))
        client    g_i <- g_i - alpha * (w_i - w_t)
        server    h <- h - (alpha/N) * sum over the round's clients of (w_i - w_t)
                  w_{t+1} = mean w_i - h / alpha

    So `h` is the mean of all N `g_i` after every round. The model w_{t+1} is evaluated; the published code plots the
    mean of all clients' last models instead. That code also scales alpha by each client's size, which is neither in
    the paper nor here.
    """

    alpha: Rate = 0.01
    """the strength of the regulariser"""

    _: KW_ONLY
    weighting: Weighting = "uniform"
    """how the clients' models are averaged: "uniform", as in the paper; "samples", by numbers of samples, which affects
    the model only, not h"""

    uniform: ClassVar[tuple[str, ...]] = ("g",)

    @property
    def proximal(self) -> float:
        return self.alpha

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"h": torch.zeros_like(w)}

    def client_state(self, w: Tensor) -> Vectors:
        return {"g": torch.zeros_like(w)}

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        return w, {}

    def round_state(self, local: LocalRun) -> Vectors:
        return {"constant": local.client_state["g"] + self.alpha * local.sent}

    def direction(self, step: Step) -> Tensor:
        return torch.add(step.grad(step.w) - step.round_state["constant"], step.w, alpha=self.alpha)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        delta = local.delta
        upload = {"delta": delta}
        if self.weighting != "uniform":
            upload["g"] = delta  # once more, for h: its mean is uniform whatever the weighting
        return upload, {"g": local.client_state["g"] - self.alpha * delta}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        mean = received.mean
        share = received.clients / received.total
        uniform_mean = mean["g"] if "g" in mean else mean["delta"]
        h = received.server_state["h"] - self.alpha * share * uniform_mean
        return received.update - h / self.alpha, {"h": h}


@dataclass(frozen=True)
class AdaBest(Method, name="adabest"):
    """FedDyn with bias estimates that decay and do not need the number of clients (Varno et al. 2022).

    `h_i` `[D]` is a client's estimate of its bias, zero at first. t_i is the round in which it last took part.

        step      w <- w - eta * (g(w) - h_i)
        client    h_i <- h_i / (t - t_i) + mu * (w_t - w_i),    t_i <- t
        server    avg_t = mean w_i,    w_{t+1} = avg_t + beta * (avg_t - avg_{t-1})          avg_{-1} = w_0

    The published code (`variant = "code"`) keeps h_i without mu, and multiplies it in each step by mu * E * m / n_i.
    E is the number of local epochs, n_i that of samples, and m the mean number of samples in a step, over all uploads
    so far (0 in the first round). For K_i steps in E epochs the factor is mu * E^2 / K_i, so the paper's form needs a
    mu that is K_i / E^2 times smaller. The paper's `weighting` is uniform.
    """

    mu: Strength = 0.02
    """the strength of the estimates of the clients' bias"""

    beta: Strength = 0.8
    """how far the server extrapolates"""

    variant: Literal["paper", "code"] = "paper"
    """the rule that h_i follows: "paper", the paper's; "code", that of the published code"""

    _: KW_ONLY
    weighting: Weighting = "uniform"
    uniform: ClassVar[tuple[str, ...]] = ("m",)

    @property
    def why_sgd(self) -> str:
        return "the method takes a multiple of a client's update for its gradient's bias"

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        state = {"avg": w.clone()}
        if self.variant == "code":
            state["m"] = w.new_zeros(())
            state["uploads"] = w.new_zeros(())
        return state

    def client_state(self, w: Tensor) -> Vectors:
        return {"h": torch.zeros_like(w), "next": torch.zeros_like(w[:1])}  # t_i + 1, so that 0 is never

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        if self.variant == "code":
            return w, {"m": server_state["m"]}
        return w, {}

    def round_state(self, local: LocalRun) -> Vectors:
        h = local.client_state["h"]
        if self.variant == "code":
            h = h * (self.mu * local.steps / local.per_epoch * local.server_state["m"] / local.size)
        return {"h": h}

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) - step.round_state["h"]

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        delta = local.delta
        next_round = torch.full_like(local.client_state["next"], local.round + 1)
        h = local.client_state["h"] / (next_round - local.client_state["next"])
        if self.variant == "paper":
            return {"delta": delta}, {"h": h - self.mu * delta, "next": next_round}
        return {"delta": delta, "m": local.samples / local.steps}, {"h": h - delta, "next": next_round}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        update = received.update
        server_state = received.server_state
        avg = received.sent + update
        new_state = {"avg": avg}
        if self.variant == "code":
            uploads = server_state["uploads"] + received.clients
            m = server_state["m"] + (received.mean["m"].squeeze() - server_state["m"]) * received.clients / uploads
            new_state |= {"m": m, "uploads": uploads}
        return update + self.beta * (avg - server_state["avg"]), new_state
