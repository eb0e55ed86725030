"""How local training runs on this machine: sequentially, vectorised over clients, in worker processes, compiled."""

from .auto import resolve
from .engine import Engine, Executor, Work, pick_device, start

__all__ = ["Engine", "Executor", "Work", "pick_device", "resolve", "start"]
