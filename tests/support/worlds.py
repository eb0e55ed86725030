"""Small federations for tests: in float64 a nonlinear one and quadratics with a known optimum; one on a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsash.data.federated import FederatedData
from fedsash.executors import LocalEngine
from fedsash.federation import Federation
from fedsash.lab.checkpoints import save
from fedsash.local import LocalTraining
from fedsash.sampling import Uniform
from fedsash.state import State

SEQUENTIAL = LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="contiguous", threads=1)
VECTORISED = LocalEngine("vectorised", workers=1, block=3, compile=False, memory_format="contiguous", threads=1)
WORKERS = LocalEngine("sequential", workers=2, block=1, compile=False, memory_format="contiguous", threads=1)
SPAWNED = LocalEngine("sequential", 2, 1, False, "contiguous", 1, "spawn")
ENGINES = {"sequential": SEQUENTIAL, "vectorised": VECTORISED, "workers": WORKERS}

SIZES = (7, 12, 3, 20, 9, 1)

ON_NETWORK: dict[str, Any] = {
    "rounds": 12,
    "partition": {"name": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": [4]},
    "averages": {"w3": {"name": "window", "size": 3}},
    "local": {"lr": 0.1, "epochs": 1},
    "evaluation": {"every": 2, "last": 1, "target": 0.3},
    "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
    "network": {"link": {"rate": 2000.0, "latency": 0.1}, "clients": {"seconds": 2.0, "spread": 0.3}},
    "scheduler": {"name": "fedwindow", "window": {"name": "aimd", "delay": 3.0}, "pipelined": True},
}
"""A short experiment on a simulated network."""


def mlp(dropout: float = 0.0, seed: int = 0) -> nn.Module:
    """A small float64 network with a frozen parameter and, on request, dropout."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3)).double()
    return net


def data(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> FederatedData:
    """Random features and labels, split into clients of the given sizes."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    clients = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    test = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)
    return FederatedData.from_arrays(
        rng.normal(size=(n, 4)), rng.integers(0, 3, n), clients, test=test, classes=3, dtype=torch.float64
    )


def federation(**settings: Any) -> Federation:
    """The nonlinear federation: six clients of unequal sizes, four a round."""
    defaults: dict[str, Any] = {
        "model": mlp(),
        "data": data(),
        "local": LocalTraining(lr=0.1, batch=5, epochs=2),
        "sampling": Uniform(4),
        "engine": SEQUENTIAL,
        "device": "cpu",
        "seed": 3,
    }
    return Federation(**defaults | settings)


class Point(nn.Module):
    """A model whose only parameter is a point `w` `[d]`; it answers with the distances `x - w`."""

    def __init__(self, start: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.w


def quadratics(curvature: Tensor) -> Any:
    """The loss a_i/2 * ||x - w||^2, the label i of a sample being its client."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return 0.5 * curvature[y] * (output**2).sum(-1)

    return loss


def quadratic_federation(a: list[float], b: list[float], start: float = 0.0, **settings: Any) -> Federation:
    """Clients i with f_i(w) = a_i/2 * (w - b_i)^2, one sample each, all in every round."""
    n = len(a)
    world = FederatedData.from_arrays(
        np.array(b)[:, None], np.arange(n), [[i] for i in range(n)], classes=n, dtype=torch.float64
    )
    defaults: dict[str, Any] = {
        "model": Point([start]),
        "data": world,
        "loss": quadratics(torch.tensor(a, dtype=torch.float64)),
        "local": LocalTraining(lr=0.1, batch="full", steps=5),
        "sampling": Uniform(n),
        "engine": SEQUENTIAL,
        "device": "cpu",
    }
    return Federation(**defaults | settings)


def after(federation: Federation, rounds: int, state: State | None = None) -> State:
    """The state after so many more rounds."""
    with federation:
        state = federation.start() if state is None else state
        for _ in range(rounds):
            state, _ = federation.round(state)
    return state


def learned(world: Federation, state: State) -> State:
    """The state after it has been evaluated, and has learned from that."""
    return world.learn(state, world.evaluate(state))[0]


def bits(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes()


def snapshot(state: State) -> dict[str, Any]:
    """All that a state holds, as plain values."""
    models = {f"{name}/{round}": w for name, past in state.past.items() for round, w in past.items()}
    best = {f"best/{name}": best.w for name, best in state.best.items()}
    numbers = (state.round, state.forked, state.samples, state.seconds, state.training_seconds)
    bests = {name: (best.accuracy, best.round) for name, best in state.best.items()}
    tensors = dict(state.tensors()) | models | best
    return {name: bits(tensor) for name, tensor in tensors.items()} | {"numbers": numbers, "bests": bests}


def listing(folder: Path) -> list[str]:
    """All that lies in a folder, at any depth."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def trained(world: Federation, rounds: int, folder: Path, every: int = 2, keep: tuple[int, ...] = ()) -> State:
    """The state after so many rounds, with a state saved every so often, evaluated each time."""
    state = world.start()
    for round in range(every, rounds + 1, every):
        state = after(world, every, state)
        state = learned(world, state)
        state.samples, state.seconds, state.training_seconds = 10 * round, 0.1 + round, round / 3
        save(state, folder, keep)
    return state
