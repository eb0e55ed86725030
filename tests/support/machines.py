"""A cluster of several machines, as Ray's own utility makes them on this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.clusters import WITHOUT_RAY

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)


@pytest.fixture
def machines() -> Iterator[Any]:
    """A cluster of one machine with one core. The others that a test adds end with it."""
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield machines
    ray.shutdown()
    machines.shutdown()
