"""The schedulers, one in each file. To add one, add a file here, its import below and a test."""

from .base import Scheduler
from .fedasync import FedAsync
from .fedbuff import FedBuff
from .fedwindow import FedWindow
from .synchronous import Synchronous

SCHEDULERS = Scheduler.by_name

__all__ = ["SCHEDULERS", "FedAsync", "FedBuff", "FedWindow", "Scheduler", "Synchronous"]
