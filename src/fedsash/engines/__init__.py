"""Engines and executors: where and how clients train. A new engine needs a file here, its import below, and a test."""

from .base import Engine
from .like import state_like, upload_like
from .local_engine import LocalEngine
from .processes import pick_device
from .ray.engine import RayEngine
from .training import ClientWork, Training

ENGINES = Engine.by_name

__all__ = [
    "ENGINES",
    "ClientWork",
    "Engine",
    "LocalEngine",
    "RayEngine",
    "Training",
    "pick_device",
    "state_like",
    "upload_like",
]
