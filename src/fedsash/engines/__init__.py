"""How local training runs on this machine: sequentially, vectorised over clients, in worker processes, compiled."""

from .auto import resolve
from .engine import Engine, Executor, Work, start

__all__ = ["Engine", "Executor", "Work", "resolve", "start"]
