"""What is out of use is freed at once, its data with it: nothing waits for Python's collector, which counts objects and
not the megabytes that they hold."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeAlias

import pytest

import fedsash as fs
from fedsash import Federation, network, runs
from support.by_default import full
from support.worlds import SEQUENTIAL, VECTORISED, WORKERS, federation, mlp

References: TypeAlias = list[weakref.ref[Any]]

KINDS: dict[str, dict[str, Any]] = {
    "one client at a time": {"engine": SEQUENTIAL},
    "stacked clients": {"engine": VECTORISED},
    "workers": {"engine": WORKERS},
    "a method with state": {"method": fs.Scaffold()},
    "averages": {"averages": {"w": fs.Window(2), "ema": fs.EMA(0.9), "swa": fs.SWA(2)}},
    "a broadcast": {"averages": {"w": fs.Window(2)}, "broadcast": fs.Broadcast("w", start=2)},
    "a server optimiser": {"server": fs.FedAdam(lr=0.01)},
}


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_a_federation(settings: dict[str, Any]) -> None:
    def trained() -> References:
        world = federation(**settings)
        with world:
            state = world.start()
            for _ in range(3):
                state, _ = world.round(state)
            world.evaluate(state)
        return references(world)

    assert are_freed(trained)


def test_a_run_that_is_resumed(tmp_path: Path) -> None:
    def run() -> References:
        world = federation(averages={"w": fs.Window(2)})
        out = Path(mkdtemp(dir=tmp_path)) / "run"
        runs.run(world, 2, out=out, progress=False)
        result = runs.resume(world, 3, out, progress=False)
        assert result.state.round == 3
        return references(world)

    assert are_freed(run)


@pytest.mark.parametrize("scheduler", [full(network.FedAsync()), network.FedBuff(2), network.FedWindow()])
def test_a_run_on_a_network(scheduler: network.Scheduler) -> None:
    def run() -> References:
        world = federation(sampling=fs.Uniform())
        runs.run(network.Asynchronous(world, network.Network(), scheduler), 3, progress=False)
        return references(world)

    assert are_freed(run)


def test_synchronous_rounds_on_a_network() -> None:
    def run() -> References:
        world = federation()
        world = replace(world, data=network.OnNetwork(world.clients))
        runs.run(world, 3, progress=False)
        return references(world)

    assert are_freed(run)


def test_a_tracker() -> None:
    def tracked() -> References:
        model = mlp()
        tracker = fs.Tracker(fs.Window(2), model)
        for _ in range(3):
            tracker.update()
        with tracker.applied():
            pass
        return [weakref.ref(model), weakref.ref(tracker)]

    assert are_freed(tracked)


def references(world: Federation) -> References:
    """References to a federation and its data that keep neither."""
    return [weakref.ref(world), weakref.ref(world.training_data)]


def are_freed(use: Callable[[], References]) -> bool:
    """Whether nothing is left of what is used. It is used twice: the first use imports, and errors that are caught in
    an import keep the frames of all that called it."""
    use()
    gc.collect()
    return all(reference() is None for reference in use())
