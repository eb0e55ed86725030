"""Federations on a simulated network: time, congestion and failures, with models that are really trained."""

from .clients import Clients
from .experiment import ROOMS, NetworkExperiment, load, parse
from .learning import Learning, Timing
from .links import Link
from .schedulers import FedAsync, FedBuff, FedWindow, Scheduler, Synchronous
from .settings import Network
from .simulation import Result, simulate
from .windows import AIMD, Capacity, Fixed, Window

__all__ = [
    "AIMD",
    "ROOMS",
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
    "Result",
    "Scheduler",
    "Synchronous",
    "Timing",
    "Window",
    "load",
    "parse",
    "simulate",
]
