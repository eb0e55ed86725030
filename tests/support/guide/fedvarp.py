"""FedVARP (Jhunjhunwala et al. 2022)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Upload, Weighting


@dataclass(frozen=True)
class FedVARP(Method, name="fedvarp"):
    """A client's last update stands in for it while it is away (Jhunjhunwala et al. 2022).

    With `Delta_i = w_i - w_t`, `y_i` the Delta_i that client i sent last (all `[D]`, zero at first) and `y` their mean:

        w_{t+1} = w_t + y + mean over the round's clients of (Delta_i - y_i),    then y_i <- Delta_i

    The paper's server keeps every `y_i`. Here each client keeps its own and the server their mean: the same models, and
    the server sees sums only. With all clients in every round it is uniform FedAvg. The paper's `weighting` is uniform.
    """

    _: KW_ONLY
    weighting: Weighting = "uniform"
    uniform: ClassVar[tuple[str, ...]] = ("y",)

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        return {"y": torch.zeros_like(w)}

    def client_state(self, w: Tensor) -> Vectors:
        return {"y": torch.zeros_like(w)}

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        delta = local.w - local.sent
        change = delta - local.client_state["y"]
        return {"delta": change, "y": change}, {"y": delta}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        y, share = received.server_state["y"], received.clients / received.total
        return y + received.update, {"y": y + share * received.mean["y"]}
