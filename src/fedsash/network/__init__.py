"""Federations on a simulated network: time, congestion and failures, with models that are really trained."""

from .clients import Clients
from .driver import Asynchronous
from .experiment import ROOMS, NetworkExperiment, load, parse
from .learning import Learning, Timing
from .links import Link
from .rounds import OnNetwork
from .schedulers import FedAsync, FedBuff, FedWindow, Scheduler, Synchronous
from .settings import Network
from .simulation import Study, simulate
from .windows import AIMD, Capacity, Fixed, Window

__all__ = [
    "AIMD",
    "ROOMS",
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
    "NetworkExperiment",
    "OnNetwork",
    "Scheduler",
    "Study",
    "Synchronous",
    "Timing",
    "Window",
    "load",
    "parse",
    "simulate",
]
