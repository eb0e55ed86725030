"""A fork of a run on a network keeps what its past is replayed by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsash import Fork
from fedsash.client import LocalTraining
from fedsash.methods import FedAvg, LocalRun, Upload
from fedsash.methods.sampling import Uniform
from fedsash.network import Asynchronous, ConstantWindow, FedWindow, Link, Network, OnNetwork, SimulatedClients
from fedsash.network.schedulers import Scheduler, Synchronous
from fedsash.settings.errors import RunError
from fedsash.vector.arrays import Vectors
from support.by_default import rotated, some
from support.observing import final, observed, rows, start
from support.worlds import data

SIZES = (7, 12, 3, 20, 9, 1, 8, 8)
LOCAL = LocalTraining(lr=0.1, batch=5, epochs=2)
SCHEDULERS: dict[str, Scheduler] = {"deadline": Synchronous(deadline=2.0), "own": FedWindow(ConstantWindow(3))}
SLOW = Network(Link(2500.0, 0.1), clients=SimulatedClients(spread=0.5, rate=5000.0), bytes=1000)
FAST = Network(Link(1e4, 0.01), clients=SimulatedClients(spread=1.0), bytes=1000)


def driver(name: str, on: Network = SLOW, **settings: Any) -> Any:
    world = observed(**{"data": data(SIZES), "sampling": Uniform(8), "local": LOCAL} | settings)
    scheduler = SCHEDULERS[name]
    if isinstance(scheduler, Synchronous):
        return replace(world, data=OnNetwork(world.clients, on, scheduler))
    return Asynchronous(world, on, scheduler)


OTHER_EVENTS: dict[str, dict[str, Any]] = {
    "network is": {"on": FAST},
    "seed is 3 there and 6 here": {"seed": 6},
    "samples in a training is": {"local": replace(LOCAL, epochs=3)},
}


class Twice(FedAvg):
    """FedAvg whose clients send their update twice."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta, "again": local.delta}, {}


def test_a_fork_keeps_how_long_messages_are(tmp_path: Path) -> None:
    start(driver("deadline"), 6, tmp_path / "source", until=3)
    with pytest.raises(RunError, match=r"past.bytes of a message is .*1000.* there and .*2000.* here"):
        start(driver("deadline", method=Twice()), 6, tmp_path / "other", fork=Fork(tmp_path / "source", 3))


@pytest.mark.parametrize("how, name", some(rotated(OTHER_EVENTS, ["deadline", "own"]), "seed is 3 there and 6 here"))
def test_a_fork_keeps_what_its_past_on_a_network_depends_on(name: str, how: str, tmp_path: Path) -> None:
    start(driver(name), 6, tmp_path / "source", until=3)
    fork = {"fork": Fork(tmp_path / "source", 3)}
    with pytest.raises(RunError, match=f"a fork must keep what its state depends on: .*{how}"):
        start(driver(name, **OTHER_EVENTS[how]), 6, tmp_path / "other", **fork)
    assert not list((tmp_path / "other").glob("state/*"))
    start(driver(name), 6, tmp_path / "whole")
    start(driver(name), 6, tmp_path / "same", **fork)
    assert final(tmp_path / "same") == final(tmp_path / "whole")


def test_a_fork_on_a_network_can_have_another_rate_from_its_round_on(tmp_path: Path) -> None:
    start(driver("deadline"), 6, tmp_path / "source", until=3)
    slow = driver("deadline", local=replace(LOCAL, lr=0.001))
    start(slow, 6, tmp_path / "fork", fork=Fork(tmp_path / "source", 3))
    times = [row["time"] for row in rows(tmp_path / "fork") if row["split"] == "network"]
    assert times == sorted(times)
