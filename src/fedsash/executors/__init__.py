"""Engines and executors: where and how clients train. A new engine needs a file here, a line below, and a test."""

from .base import Engine
from .devices import pick_device
from .local_engine import LocalEngine
from .training import ClientWork, Training

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine}

__all__ = ["ENGINES", "ClientWork", "Engine", "LocalEngine", "Training", "pick_device"]
