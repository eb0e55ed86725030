"""Federations on a simulated network: time, congestion and failures, with models that are really trained."""

from .clients import Clients
from .driver import Asynchronous
from .learning import Learning, Timing
from .links import Link
from .rounds import OnNetwork
from .schedulers import FedAsync, FedBuff, FedWindow, Scheduler, Synchronous
from .settings import Network
from .windows import AIMD, Capacity, Fixed, Window

__all__ = [
    "AIMD",
    "Asynchronous",
    "Capacity",
    "Clients",
    "FedAsync",
    "FedBuff",
    "FedWindow",
    "Fixed",
    "Learning",
    "Link",
    "Network",
    "OnNetwork",
    "Scheduler",
    "Synchronous",
    "Timing",
    "Window",
]
