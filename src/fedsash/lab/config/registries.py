"""All registries: the things that an experiment file can name."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from ...aggregation import AGGREGATIONS, Aggregation
from ...averages import AVERAGES, Average
from ...data import DATASETS, PARTITIONS, TRANSFORMS, Transform
from ...data.partitions.common import Partition
from ...data.source import Dataset
from ...executors import ENGINES, Engine
from ...local import OPTIMISERS, Optimiser
from ...methods import METHODS, Method
from ...models import MODELS
from ...network.client_windows import CLIENT_WINDOWS, ClientWindow
from ...network.schedulers import SCHEDULERS, Scheduler
from ...sampling import SAMPLINGS, Sampling
from ...schedules import LOCAL_SCHEDULES, SCHEDULES, LocalSchedule, Schedule
from ...servers import SERVERS, Server
from ...settings.errors import SettingError
from ...tasks import METRICS, TASKS, Metric, Task
from ..callbacks import CALLBACKS
from ..runs import Callback
from .errors import ConfigError
from .model import Model, ModelRegistry
from .registry import Make, Registry
from .words import shown, suggestion

REGISTRIES: dict[str, Registry] = {
    "methods": Registry("method", METHODS, Method),
    "aggregations": Registry("aggregation", AGGREGATIONS, Aggregation),
    "servers": Registry("server", SERVERS, Server),
    "averages": Registry("averages.NAME", AVERAGES, Average),
    "samplings": Registry("sampling", SAMPLINGS, Sampling),
    "optimisers": Registry("local.optimiser", OPTIMISERS, Optimiser),
    "schedules": Registry("local.schedule", SCHEDULES, Schedule),
    "local_schedules": Registry("local.local_schedule", LOCAL_SCHEDULES, LocalSchedule),
    "partitions": Registry("partition", PARTITIONS, Partition),
    "models": ModelRegistry("model", MODELS, Model),
    "datasets": Registry("data", DATASETS, Dataset),
    "transforms": Registry("transform", TRANSFORMS, Transform),
    "tasks": Registry("task", TASKS, Task),
    "metrics": Registry("metrics.NAME", METRICS, Metric),
    "engines": Registry("engine", ENGINES, Engine),
    "callbacks": Registry("callbacks.NAME", CALLBACKS, Callback),
    "schedulers": Registry("scheduler", SCHEDULERS, Scheduler),
    "client_windows": Registry("scheduler.window", CLIENT_WINDOWS, ClientWindow),
}
"""Every registry. A new registry is one line here. A field whose type is its base then accepts its things."""


def registry_of(kind: Any) -> Registry | None:
    """The registry whose things fit a field of this type: that of the type itself, or of a class that it extends."""
    bases = {registry.base: registry for registry in REGISTRIES.values()}
    if kind in bases or is_dataclass(kind):
        return bases.get(kind)
    return next((bases[base] for base in getattr(kind, "__mro__", ()) if base in bases), None)


def find(registry: Registry, name: Any, place: str) -> Make:
    """The thing of that name, for the table at `place`. Raises `ConfigError`, which suggests a similar name."""
    try:
        return registry.find(name)
    except SettingError as error:
        key = f"{place}.name"
        raise ConfigError(f"{key} = {shown(name)}: {error.right}{_hint(registry, name)}", key) from error


def _hint(registry: Registry, name: Any) -> str:
    """A hint for an unknown name: another registry that has it, or a similar name in this registry."""
    if not isinstance(name, str) or ":" in name:
        return ""
    elsewhere = [other.key for other in REGISTRIES.values() if name in other.things]
    close = suggestion(name, registry.things)
    hint = f"; did you mean {close}?" if close else ""
    return f"; there is {elsewhere[0]}.name = {shown(name)}" if elsewhere else hint
