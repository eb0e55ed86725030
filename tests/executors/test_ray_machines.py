"""A cluster of two machines, as Ray's own utility makes them on this one: one of them goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fedsash import SettingError
from fedsash.executors import RayEngine
from fedsash.methods import Scaffold
from fedsash.sampling import Uniform
from support.clusters import HERE, WITHOUT_RAY
from support.worlds import SIZES, after, federation, identical

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {"method": Scaffold(), "sampling": Uniform(len(SIZES))}


@pytest.fixture
def machines() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield machines
    ray.shutdown()
    machines.shutdown()


def test_a_machine_that_goes_costs_its_pieces_once_more(machines: Any, caplog: pytest.LogCaptureFixture) -> None:
    second = machines.add_node(num_cpus=1)
    engine = RayEngine(actors=2, address=machines.address, pieces=3, memory_format="contiguous")
    with federation(**SETTINGS, engine=engine) as world:
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


def test_an_address_that_is_none_is_refused_in_a_line() -> None:
    with pytest.raises(SettingError, match=r"^RayEngine.address = 'nowhere': can't be reached \(.*\)$"):
        federation(engine=RayEngine(address="nowhere")).prepare()
