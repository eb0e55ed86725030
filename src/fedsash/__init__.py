"""Federated learning whose heart is averaging global models over rounds."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aggregation import FedGMA, FedNova, WeightedMean
    from .averages import EMA, SWA, Tracker, Window
    from .basics.layout import Layout
    from .broadcast import Broadcast
    from .data import FederatedData
    from .evaluation import Evaluation
    from .executors import LocalEngine
    from .federation import Federation
    from .lab.runs import Checkpoint, Fork, Result, RunningSums, resume, run
    from .local import LocalTraining
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
    "aggregation": ("FedGMA", "FedNova", "WeightedMean"),
    "averages": ("EMA", "SWA", "Tracker", "Window"),
    "data": ("FederatedData",),
    "executors": ("LocalEngine",),
    "evaluation": ("Evaluation",),
    "federation": ("Federation",),
    "broadcast": ("Broadcast",),
    "basics.layout": ("Layout",),
    "local": ("LocalTraining",),
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
    "Broadcast",
    "Checkpoint",
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
    "Fork",
    "Layout",
    "LocalEngine",
    "LocalTraining",
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "Result",
    "RunningSums",
    "Scaffold",
    "Tracker",
    "WeightedMean",
    "Window",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a public name's room when it is first asked for: `fedsash --help` need not wait for PyTorch."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedsash' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
