"""Means of the trajectory of models: observed during training, without ever changing it."""

from .base import Average, Keeps, State, check_names
from .ema import EMA
from .observer import Observer
from .observers import Observers, Seen
from .swa import SWA
from .tracker import Tracker
from .window import Window

AVERAGES: dict[str, type[Average]] = {"window": Window, "swa": SWA, "ema": EMA}

__all__ = [
    "AVERAGES",
    "EMA",
    "SWA",
    "Average",
    "Keeps",
    "Observer",
    "Observers",
    "Seen",
    "State",
    "Tracker",
    "Window",
    "check_names",
]
