"""Small federations in double precision, with whose rounds identities are calculated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...client import LocalTraining
from ...data import FederatedData
from ...engines import LocalEngine
from ...methods import FedAvg, Method
from ...methods.sampling import Uniform
from ...network import Network, OnNetwork
from ...network.chronicle import NetworkChronicle
from ...runs import Driver
from ...server.federation import Federation
from ...vector.arrays import Floats, Ints

ENGINE = LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="contiguous", threads=1)


class Point(nn.Module):
    """A model whose only parameter is a number w. Its output is x - w."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.w


def half_square(output: Tensor, y: Tensor) -> Tensor:
    """The loss (x - w)^2 / 2 of each sample. Its gradient is w - x, so it is 1-smooth."""
    return 0.5 * output.square().sum(-1)


def quadratic_federation(
    optima: Sequence[float], local: LocalTraining, start: float = 1.0, method: Method | None = None
) -> Federation:
    """Clients with the losses (w - optimum)^2 / 2, one sample each, all in every round. The model begins at `start`."""
    clients = len(optima)
    labels = np.zeros(clients, dtype=np.int64)
    data = FederatedData.from_arrays(np.array(optima)[:, None], labels, [[i] for i in range(clients)], classes=1)
    return Federation(
        Point(start),
        data,
        loss=half_square,
        method=method or FedAvg(),
        local=local,
        sampling=Uniform(clients),
        engine=ENGINE,
        device="cpu",
    )


def trajectory(driver: Driver, steps: int) -> Floats:
    """The model before the first of so many steps of the server, and after each, `[steps + 1]`."""
    with driver.federation:
        state = driver.federation.start()
        models = [float(state.w)]
        for _ in range(steps):
            state, _ = driver.round(state)
            models.append(float(state.w))
    return np.array(models)


def on_network(federation: Federation) -> Federation:
    """The same federation in synchronous rounds on a network, which counts what is sent."""
    return Federation(
        federation.module,
        OnNetwork(federation.clients, Network()),
        loss=half_square,
        method=federation.method,
        local=federation.local,
        sampling=federation.sampling,
        engine=ENGINE,
        device="cpu",
    )


@dataclass(frozen=True)
class Sent:
    """What clients do in the same time: the bytes `up` and `down`, the `samples` in their local steps, and how often
    each client has `trained` and sent its model, `[N]`."""

    up: float
    down: float
    samples: float
    trained: Ints


def sent(driver: Driver, steps: int, before: int) -> Sent:
    """What clients do in so many steps of the server, after as many `before` them."""
    with driver.federation:
        state = driver.federation.start()
        ids: list[int] = []
        samples = 0
        counts = [0.0, 0.0]
        for step in range(before + steps):
            state, report = driver.round(state)
            assert isinstance(driver.chronicle, NetworkChronicle)
            measures = driver.chronicle.load(state.round).measures
            if step == before - 1:
                counts = [measures["bytes_up"], measures["bytes_down"]]
            if step >= before:
                ids += report.clients.tolist()
                samples += report.samples
    trained = np.bincount(ids, minlength=len(driver.federation.sizes))
    return Sent(measures["bytes_up"] - counts[0], measures["bytes_down"] - counts[1], samples, trained)
