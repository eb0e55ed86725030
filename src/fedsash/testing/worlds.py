"""Small federations: a nonlinear one in float64, and quadratics whose rounds have a closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..client import LocalTraining
from ..data.federated import FederatedData
from ..engines import LocalEngine
from ..methods.sampling import Uniform
from ..runs import Driver
from ..server.federation import Federation
from ..server.state import State

SEQUENTIAL = LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="contiguous", threads=1)
VECTORISED = LocalEngine("vectorised", workers=1, block=3, compile=False, memory_format="contiguous", threads=1)
WORKERS = LocalEngine("sequential", workers=2, block=1, compile=False, memory_format="contiguous", threads=1)

SIZES = (7, 12, 3, 20, 9, 1)
"""The numbers of samples of the small federation's clients."""
BATCH = 5
EPOCHS = 2
"""How much each of them trains in a round."""


def small_model(dropout: float = 0.0, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A network with one hidden layer, from 4 features to 3 classes, with an optional dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3)).to(dtype)


def small_data(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> FederatedData:
    """Random features `[n, 4]` and labels 0 to 2 for clients of the given sizes, and a test set of 20 samples."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    clients = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    test = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)
    x = rng.normal(size=(n, 4))
    y = rng.integers(0, 3, n)
    return FederatedData.from_arrays(x, y, clients, test=test, classes=3)


def small_federation(**settings: Any) -> Federation:
    """Six clients of unequal `SIZES`, four in each round, with the small model. `settings` are a `Federation`'s."""
    defaults: dict[str, Any] = {
        "model": small_model(),
        "data": small_data(),
        "local": LocalTraining(lr=0.1, batch=BATCH, epochs=EPOCHS),
        "sampling": Uniform(4),
        "engine": SEQUENTIAL,
        "device": "cpu",
        "seed": 3,
    }
    return Federation(**defaults | settings)


class Point(nn.Module):
    """A model whose only parameter is a point `w` `[d]`. Its output is `x - w`."""

    def __init__(self, start: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.w


def quadratics(curvature: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss a_i/2 * ||x - w||^2, where a sample's label i is its client. `curvature` holds a `[N]`."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return 0.5 * curvature[y] * (output**2).sum(-1)

    return loss


def quadratic_federation(a: list[float], b: list[float], start: float = 0.0, **settings: Any) -> Federation:
    """Clients i with f_i(w) = a_i/2 * (w - b_i)^2 and one sample each, all in every round. `settings` as above."""
    n = len(a)
    x = np.array(b)[:, None]
    clients = [[i] for i in range(n)]
    data = FederatedData.from_arrays(x, np.arange(n), clients, classes=n)
    defaults: dict[str, Any] = {
        "model": Point([start]),
        "data": data,
        "loss": quadratics(torch.tensor(a, dtype=torch.float64)),
        "local": LocalTraining(lr=0.1, batch="full", steps=5),
        "sampling": Uniform(n),
        "engine": SEQUENTIAL,
        "device": "cpu",
    }
    return Federation(**defaults | settings)


def after(federation: Driver, rounds: int, state: State | None = None) -> State:
    """The state after so many more rounds of a federation or another driver. The federation is closed at the end."""
    with federation.federation as opened:
        if state is None:
            state = opened.start()
        for _ in range(rounds):
            state, _ = federation.round(state)
    return state
