"""A Ray cluster for tests, started for real on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedsash.engines import RayEngine
from fedsash.testing.worlds import SEQUENTIAL

WITHOUT_RAY = 'Ray is not installed: pip install "fedsash[cluster]"'
ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
HERE = replace(SEQUENTIAL, pieces=3)
"""One machine, with the pieces of `on_ray`."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """More cores than this machine has, so that the actors of several federations find room."""
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    ray.init(address="local", num_cpus=16, **quiet)
    yield
    ray.shutdown()


@contextmanager
def started_machines() -> Iterator[Any]:
    """A cluster of one machine with one core; `add_node` and `remove_node` are Ray's. No Ray may run here before."""
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield machines
    ray.shutdown()
    machines.shutdown()


def on_ray(actors: int, pieces: int = 3, block: int = 1) -> RayEngine:
    """An engine whose actors compute as `SEQUENTIAL` or `VECTORISED` does."""
    return RayEngine(actors=actors, block=block, memory_format="contiguous", pieces=pieces)


def wide(hidden: int = 5000) -> nn.Module:
    """A model of 320 KB, which Ray does not send along with an answer as it does with small objects."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 3)).double()
