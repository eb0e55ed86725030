"""A method whose vectors change with the rounds: those that it sends, uploads and uses within a round."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsash.methods import FedAvg, LocalRun, RoundMean, Step, Upload
from fedsash.vector.arrays import Vectors
from fedsash.vector.layout import Layout
from fedsash.vector.spaces import CommonPart, ServerState


@dataclass(frozen=True)
class Switching(FedAvg):
    """FedProx towards the start in even rounds and towards the mean client in odd ones, each with its own vectors.

    Even rounds send `start` and then a whole number as `mu`, odd ones a fraction as `mu` and then `mean`.
    """

    def server_state(self, w: CommonPart, layout: Layout) -> Vectors:
        return {"start": w.clone(), "mean": w.clone()}

    def send(self, w: CommonPart, server_state: ServerState, round: int) -> tuple[Tensor, Vectors]:
        if round % 2 == 0:
            return w, {"start": server_state["start"], "mu": torch.tensor(1)}
        return w, {"mu": torch.tensor([0.5, 0.25]).to(w), "mean": server_state["mean"]}

    def round_state(self, local: LocalRun) -> Vectors:
        if local.round % 2 == 0:
            return {}
        return {"drift": torch.zeros_like(local.w)}

    def direction(self, step: Step) -> Tensor:
        gradient = step.grad(step.w)
        strength = step.server_state["mu"].sum()
        if "start" in step.server_state:
            return gradient + strength * (step.w - step.server_state["start"])
        step.round_state["drift"] += step.w - step.server_state["mean"]
        return gradient + strength * step.round_state["drift"]

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        uploads = {"delta": local.delta}
        if local.round % 2 == 1:
            uploads = {"model": local.w, "delta": local.delta}
        return uploads, {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        server_state = dict(received.server_state)
        if "model" in received.mean:
            server_state["mean"] = received.mean["model"]
        return received.update, server_state
