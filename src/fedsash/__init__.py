"""Federated learning whose heart is averaging global models over rounds."""

from importlib.metadata import version

from .aggregation import Mean
from .averages import EMA, SWA, Tracker, Window
from .data import FederatedData
from .engines import Engine
from .evaluation import Evaluation
from .federation import Federation, Feed
from .layout import Layout
from .local import Client
from .methods import FedAvg, FedProx, Scaffold
from .runs import Checkpoint, Result, resume, run

__version__ = version("fedsash")

__all__ = [
    "EMA",
    "SWA",
    "Checkpoint",
    "Client",
    "Engine",
    "Evaluation",
    "FedAvg",
    "FedProx",
    "FederatedData",
    "Federation",
    "Feed",
    "Layout",
    "Mean",
    "Result",
    "Scaffold",
    "Tracker",
    "Window",
    "resume",
    "run",
]
