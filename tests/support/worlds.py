"""The small worlds of `fedsash.testing` by the short names of the tests, and what tests alone need of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedsash.engines import LocalEngine
from fedsash.runs.checkpoints import save
from fedsash.runs.tally import Best, Tally, best_after
from fedsash.server.federation import Federation
from fedsash.server.state import State
from fedsash.testing import after, identical, quadratic_federation, record
from fedsash.testing import small_data as data
from fedsash.testing import small_federation as federation
from fedsash.testing import small_model as mlp
from fedsash.testing.worlds import SEQUENTIAL, SIZES, VECTORISED, WORKERS, Point, quadratics
from fedsash.vector.arrays import Ints

__all__ = [
    "ENGINES",
    "EVERY_ENGINE",
    "ON_NETWORK",
    "SEQUENTIAL",
    "SIZES",
    "SPAWNED",
    "SPAWNED_TOO",
    "VECTORISED",
    "WORKERS",
    "Point",
    "after",
    "best",
    "bits",
    "data",
    "federation",
    "identical",
    "learned",
    "listing",
    "mlp",
    "quadratic_federation",
    "quadratics",
    "record",
    "sampled",
    "trained",
]

SPAWNED = LocalEngine("sequential", 2, 1, False, "contiguous", 1, "spawn")
ENGINES = {"sequential": SEQUENTIAL, "vectorised": VECTORISED, "workers": WORKERS}
EVERY_ENGINE = ENGINES | {"spawned": SPAWNED}
SPAWNED_TOO = pytest.param("spawned", marks=pytest.mark.slow)
"""The name of spawned workers for a test; they take seconds to start."""

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


def sampled(world: Federation, round: int) -> Ints:
    """The clients that take part in a round."""
    return world.sampling.clients(round, world.sizes, world.seed)


def learned(world: Federation, state: State) -> State:
    """The state after it has been evaluated, and has learned from that."""
    return world.learn(state, world.evaluate(state))[0]


def bits(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes()


def best(world: Federation, state: State) -> dict[str, Best]:
    """The best models of a run that has evaluated this state alone."""
    return best_after({}, world, state, world.evaluate(state))


def listing(folder: Path) -> list[str]:
    """All that lies in a folder, at any depth."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def trained(world: Federation, rounds: int, folder: Path, every: int = 2, keep: tuple[int, ...] = ()) -> State:
    """The state after so many rounds, with a state saved every so often, evaluated each time."""
    state = world.start()
    tally = Tally()
    for round in range(every, rounds + 1, every):
        state = after(world, every, state)
        models = best_after(tally.best, world, state, world.evaluate(state))
        tally = Tally(models, samples=10 * round, seconds=0.1 + round, training_seconds=round / 3)
        state = learned(world, state)
        save(state, folder, keep, tally=tally)
    return state
