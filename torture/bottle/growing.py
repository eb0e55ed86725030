"""A method whose clients remember what soon is not finite, while their uploads stay finite."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedsash.methods import FedAvg
from fedsash.methods.base import LocalRun, Upload
from fedsash.vector.arrays import Vectors

MOST = 3
"""So many rounds of a client can count: after the next one its number is not finite."""


@dataclass(frozen=True)
class Growing(FedAvg):
    """FedAvg; each client remembers a number, which is 1 at first and grows by a factor of 1e100 in each round."""

    def client_state(self, w: Tensor) -> Vectors:
        return {"number": w.new_ones(1)}

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        upload, _ = super().upload(local)
        return upload, {"number": 1e100 * local.client_state["number"]}
