"""Federations for tests of differential privacy, whose clients send given updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsash.client.messages import Request
from fedsash.methods import FedAvg
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.testing import FakeClients
from support.worlds import Point

UNIFORM = FedAvg(weighting="uniform")


def sending(deltas: list[Tensor | str], **settings: Any) -> Federation:
    """A federation whose client i always sends `deltas[i]` `[D]`, or says why it does not answer. The model is 0."""

    def handler(request: Request) -> dict[str, Tensor] | str:
        delta = deltas[int(request.ids[0])]
        return delta if isinstance(delta, str) else {"delta": delta}

    size = next(len(delta) for delta in deltas if not isinstance(delta, str))
    clients = FakeClients(handler, np.ones(len(deltas)))
    defaults: dict[str, Any] = {"method": UNIFORM, "sampling": Uniform(len(deltas)), "device": "cpu"}
    return Federation(Point([0.0] * size), clients, **defaults | settings)


def along(*lengths: float) -> list[Tensor | str]:
    """Updates along one axis of two, of these lengths."""
    return [torch.tensor([length, 0.0], dtype=torch.float64) for length in lengths]


def still(size: int, **settings: Any) -> Federation:
    """A federation of four clients that all send an update `[size]` of zero."""
    return sending([torch.zeros(size, dtype=torch.float64)] * 4, **settings)
