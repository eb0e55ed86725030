"""Averages of the global models of successive rounds. They observe the training and never change it."""

from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from .average_map import AverageMap, WindowValue
from .base import Average, Retention, check_names
from .bema import BEMA
from .ema import EMA
from .observers import AverageStates, Observer, Observers
from .power_ema import PowerEMA
from .swa import SWA
from .tracker import Tracker
from .window import Window

AVERAGES = Average.by_name

__all__ = [
    "AVERAGES",
    "BEMA",
    "EMA",
    "SWA",
    "Average",
    "AverageMap",
    "AverageStates",
    "Observer",
    "Observers",
    "Pieces",
    "PowerEMA",
    "Retention",
    "Tracker",
    "Vectors",
    "Window",
    "WindowValue",
    "check_names",
]
