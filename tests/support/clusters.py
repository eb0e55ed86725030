"""A Ray cluster for tests, started for real on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedsash.executors import RayEngine
from fedsash.testing.worlds import SEQUENTIAL

WITHOUT_RAY = "Ray is not installed: pip install 'fedsash[cluster]'"
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


def on_ray(actors: int, pieces: int = 3, block: int = 1) -> RayEngine:
    """An engine whose actors compute as `SEQUENTIAL` or `VECTORISED` does."""
    return RayEngine(actors=actors, block=block, memory_format="contiguous", pieces=pieces)


def wide(hidden: int = 5000) -> nn.Module:
    """A model of 320 KB, which Ray does not send along with an answer as it does with small objects."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 3)).double()
