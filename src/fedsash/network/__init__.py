"""Federations on a simulated network. Time, congestion and failures are simulated; the models are really trained."""

from ..settings.errors import library

with library("simpy", "fedsash.network", "fedsash[lab]"):
    import simpy  # noqa: F401  # what all modules of this room need

from .clients import SimulatedClients
from .driver import Asynchronous
from .fedwindow import AIMDWindow, CapacityWindow, ClientWindow, ConstantWindow, Control, FedWindow
from .learning import Learning, Timing
from .links import Link
from .rounds import OnNetwork
from .schedulers import FedAsync, FedBuff, Scheduler, Synchronous
from .settings import Network

__all__ = [
    "AIMDWindow",
    "Asynchronous",
    "CapacityWindow",
    "ClientWindow",
    "ConstantWindow",
    "Control",
    "FedAsync",
    "FedBuff",
    "FedWindow",
    "Learning",
    "Link",
    "Network",
    "OnNetwork",
    "Scheduler",
    "SimulatedClients",
    "Synchronous",
    "Timing",
]
