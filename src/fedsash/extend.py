"""What authors of methods, averages, rules, engines, data sets and callbacks build on."""

from .averages import Average
from .client import Optimiser
from .client.messages import Executor, Reply, Request
from .data import Source, Transform
from .engines import Engine
from .engines.clients import Clients
from .methods import Aggregation, LocalRun, Method, RoundMean, Step
from .methods.sampling import Sampling
from .methods.schedules import LocalSchedule, Schedule
from .methods.server_optimisers import Server
from .runs import Callback, LiveRun
from .server import State
from .tasks import Metric, Task
from .vector.layout import Layout

__all__ = [
    "Aggregation",
    "Average",
    "Callback",
    "Clients",
    "Engine",
    "Executor",
    "Layout",
    "LiveRun",
    "LocalRun",
    "LocalSchedule",
    "Method",
    "Metric",
    "Optimiser",
    "Reply",
    "Request",
    "RoundMean",
    "Sampling",
    "Schedule",
    "Server",
    "Source",
    "State",
    "Step",
    "Task",
    "Transform",
]
