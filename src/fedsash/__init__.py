"""Federated learning whose heart is averaging global models over rounds."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aggregation import FedGMA, FedNova, Mean
    from .averages import EMA, SWA, Tracker, Window
    from .basics.layout import Layout
    from .broadcast import Feed
    from .data import FederatedData
    from .evaluation import Evaluation
    from .executors import LocalEngine
    from .federation import Federation
    from .lab.runs import Checkpoint, Fork, Result, RunningSums, resume, run
    from .local import Client
    from .methods import (
        EWC,
        AdaBest,
        FedACG,
        FedASAM,
        FedAvg,
        FedCM,
        FedDyn,
        FedFA,
        FedLESAM,
        FedMoSWA,
        FedProx,
        FedSAM,
        FedSWA,
        Mime,
        MimeLite,
        MoFedSAM,
        Scaffold,
    )

__version__ = version("fedsash")

_ROOMS = {
    "aggregation": ("FedGMA", "FedNova", "Mean"),
    "averages": ("EMA", "SWA", "Tracker", "Window"),
    "data": ("FederatedData",),
    "executors": ("LocalEngine",),
    "evaluation": ("Evaluation",),
    "federation": ("Federation",),
    "broadcast": ("Feed",),
    "basics.layout": ("Layout",),
    "local": ("Client",),
    "methods": (
        "EWC",
        "AdaBest",
        "FedACG",
        "FedASAM",
        "FedAvg",
        "FedCM",
        "FedDyn",
        "FedFA",
        "FedLESAM",
        "FedMoSWA",
        "FedProx",
        "FedSAM",
        "FedSWA",
        "Mime",
        "MimeLite",
        "MoFedSAM",
        "Scaffold",
    ),
    "lab.runs": ("Checkpoint", "Fork", "Result", "RunningSums", "resume", "run"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "EMA",
    "EWC",
    "SWA",
    "AdaBest",
    "Checkpoint",
    "Client",
    "Evaluation",
    "FedACG",
    "FedASAM",
    "FedAvg",
    "FedCM",
    "FedDyn",
    "FedFA",
    "FedGMA",
    "FedLESAM",
    "FedMoSWA",
    "FedNova",
    "FedProx",
    "FedSAM",
    "FedSWA",
    "FederatedData",
    "Federation",
    "Feed",
    "Fork",
    "Layout",
    "LocalEngine",
    "Mean",
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "Result",
    "RunningSums",
    "Scaffold",
    "Tracker",
    "Window",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name's room when it is first asked for: `fedsash --help` need not wait for PyTorch."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedsash' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
