"""A cluster of two machines, as Ray's own utility makes them on this one: one of them goes."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsash import Checkpoint, SettingError, resume, run
from fedsash.client.messages import RoundReport
from fedsash.engines import RayEngine
from fedsash.errors import WorkerError
from fedsash.methods import Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.runs import Callback, LiveRun
from support.clusters import HERE, WITHOUT_RAY, started_machines, wide
from support.worlds import SIZES, after, federation, identical

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"method": Scaffold(), "sampling": Uniform(len(SIZES))}


@pytest.fixture
def machines() -> Iterator[Any]:
    with started_machines() as machines:
        yield machines


def on_both(machines: Any) -> RayEngine:
    """An engine with an actor on each of two machines."""
    return RayEngine(actors=2, address=machines.address, pieces=3, memory_format="contiguous")


def test_a_machine_that_goes_costs_its_pieces_once_more(machines: Any, caplog: pytest.LogCaptureFixture) -> None:
    second = machines.add_node(num_cpus=1)
    with federation(**SETTINGS, engine=on_both(machines)) as world:
        (line,) = world.prepare()
        assert line == "engine: 2 actors on a Ray cluster with 2 cores on 2 machines"
        state = world.start()
        while len(list(world.executor._pool.processes())) < 2:  # type: ignore[attr-defined]
            state, _ = world.round(world.start())  # both take part
        before = state.round
        machines.remove_node(second, allow_graceful=False)
        for _ in range(2):
            state, _ = world.round(state)
    assert identical(state, after(federation(**SETTINGS, engine=HERE), before + 2))
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("round 2: an actor died (")


class Leaving(Callback):
    """Lets a machine go after a round in which it took part."""

    def __init__(self, machines: Any, machine: Any, round: int) -> None:
        self.machines, self.machine, self.round_of_loss = machines, machine, round

    def begin(self, run: LiveRun) -> None:
        starting = [*run.federation.executor._pool._starting]  # type: ignore[attr-defined]
        ray.wait(starting, num_returns=len(starting))

    def round(self, run: LiveRun, report: RoundReport) -> None:
        if report.round == self.round_of_loss:
            owners = {node for handle in run.state.clients.handles for node in places(handle)}  # type: ignore[union-attr]
            assert len(owners) == 2
            self.machines.remove_node(self.machine, allow_graceful=False)


def places(handle: Any) -> list[str]:
    """The machines that have a client's state."""
    from ray.experimental import get_object_locations

    ray.wait([handle.ref], fetch_local=False)
    found: list[str] = get_object_locations([handle.ref])[handle.ref]["node_ids"]
    return found


@pytest.mark.parametrize(("every", "again"), [(1, False), (2, True)], ids=["saved", "not saved"])
def test_client_state_that_a_machine_takes_with_it_is_read_again_or_the_run_goes_back_to_where_it_was_saved(
    every: int, again: bool, machines: Any, tmp_path: Path
) -> None:
    settings = SETTINGS | {"model": wide()}
    second = machines.add_node(num_cpus=1)
    world = federation(**settings, engine=on_both(machines))
    until: dict[str, Any] = {"checkpoint": Checkpoint(every=every), "progress": False, "out": tmp_path / "a"}
    if again:
        with pytest.raises(WorkerError, match=r"^the state of client \d was lost with its machine before") as error:
            run(world, 5, callbacks=[Leaving(machines, second, 3)], **until)
        unsaved, how = error.value.__notes__
        assert unsaved.startswith("the state after round 3 could not be saved, so resume goes back to round 2: ")
        assert "fedsash.resume" in how
        alone = replace(on_both(machines), actors=1)
        result = resume(federation(**settings, engine=alone), 5, **until)
    else:
        result = run(world, 5, callbacks=[Leaving(machines, second, 3)], **until)
    assert identical(result.state, run(federation(**settings, engine=HERE), 5, progress=False).state)


def test_without_any_machine_for_its_actors_a_round_ends_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    from fedsash.engines.ray import pool

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        second = machines.add_node(num_cpus=1)
        with federation(engine=RayEngine(actors=1, address=machines.address)) as world:
            state, _ = world.round(world.start())
            machines.remove_node(second, allow_graceful=False)
            monkeypatch.setattr(pool, "PATIENCE", 5.0)
            with pytest.raises(WorkerError, match=r"^round 2: no actor has started within 5 s; has the cluster free"):
                world.round(state)
    finally:
        ray.shutdown()
        machines.shutdown()


def test_client_state_for_which_no_disk_has_room_ends_the_round_in_a_line() -> None:
    """Ray takes a disk that is used to a thousandth as full."""
    full = {"local_fs_capacity_threshold": 0.001}
    ray.init("local", num_cpus=1, object_store_memory=80 * 10**6, include_dashboard=False, _system_config=full)
    try:
        engine = RayEngine(actors=1, pieces=3, memory_format="contiguous")
        with federation(**SETTINGS | {"model": wide(100_000)}, engine=engine) as world:
            state = world.start()
            with pytest.raises(WorkerError, match=r"^round \d: Ray's object store and the disk behind it are full"):
                while state.round < 10:
                    state, _ = world.round(state)
    finally:
        ray.shutdown()


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}", "nobody.invalid:{}"])
def test_an_address_at_which_nobody_listens_is_refused_at_once(address: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = address.format(free.getsockname()[1])
    began = time.monotonic()
    with pytest.raises(SettingError, match=rf"= .{re.escape(address)}.: can.t be reached: .*HOST:PORT.* \(.*\)$"):
        federation(engine=RayEngine(address=address)).prepare()
    assert time.monotonic() - began < 15


def test_an_address_that_is_none_is_refused_in_a_line() -> None:
    with pytest.raises(SettingError, match=r"^RayEngine.address = 'nowhere': can't be reached: .*HOST:PORT.* \(.*\)$"):
        federation(engine=RayEngine(address="nowhere")).prepare()
