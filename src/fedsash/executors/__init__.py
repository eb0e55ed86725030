"""Where clients train, and how. A new engine is a file here, a line below, and the contract of executors."""

from .base import Engine
from .devices import pick_device
from .local_engine import LocalEngine
from .training import ClientWork, Training

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine}

__all__ = ["ENGINES", "ClientWork", "Engine", "LocalEngine", "Training", "pick_device"]
