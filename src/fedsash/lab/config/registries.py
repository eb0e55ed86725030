"""Registries: the things that an experiment file can name, each kind under its table's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args

from ... import models
from ...averages import AVERAGES, Average
from ...client import OPTIMISERS, Optimiser
from ...data import DATASETS, PARTITIONS, TRANSFORMS, Transform
from ...data.partitions.common import Partition
from ...data.source import Dataset
from ...engines import ENGINES, Engine
from ...methods import AGGREGATIONS, METHODS, Aggregation, Method
from ...methods.sampling import SAMPLINGS, Sampling
from ...methods.schedules import LOCAL_SCHEDULES, SCHEDULES, LocalSchedule, Schedule
from ...methods.server_optimisers import SERVERS, Server
from ...models import MODELS
from ...network.fedwindow import CLIENT_WINDOWS, ClientWindow
from ...network.schedulers import SCHEDULERS, Scheduler
from ...runs import Callback
from ...runs.callbacks import CALLBACKS
from ...settings.errors import ConfigError, SettingError, check
from ...settings.options import Make, Option, options
from ...settings.resolve import resolve
from ...settings.setting import hints_of
from ...tasks import METRICS, TASKS, Metric, Task
from .model import Model, options_of
from .words import shown, suggestion

LIBRARY = __name__.partition(".")[0]


@dataclass(frozen=True)
class Registry:
    """Things by name: classes that extend `base`.

    `key` is the table of the experiment file that chooses one of them by its `name`. A user's own dataclass that
    extends `base` is written as `"package.module:Class"`.
    """

    key: str
    things: Mapping[str, Make]
    base: type

    def find(self, name: Any) -> Make:
        """The thing of that name. `SettingError` if it is missing, can't be imported, or doesn't extend `base`."""
        if isinstance(name, str) and name in self.things:
            return self.things[name]
        check(isinstance(name, str) and ":" in name, "name", name, self.requirement)
        make: Make = resolve(name)
        extends_base = is_dataclass(make) and isinstance(make, type) and issubclass(make, self.base)
        base = f"{self.base.__module__}.{self.base.__qualname__}"
        check(extends_base, "name", name, f"must be a dataclass that extends {base}")
        clash = "must have no field called name: in a file, name chooses the class"
        check("name" not in options(make), "name", name, clash)
        return make

    def chosen(self, table: Mapping[str, Any]) -> str | None:
        """The name of the thing that a table without a name means: a field of it, marked `chooses`, takes the value.

        None if the table has no such field. Raises `SettingError` if no thing takes the value.
        """
        choices = _choices(self.base)
        for key, names in choices.items():
            if key in table:
                value = table[key]
                check(isinstance(value, str) and value in names, key, value, f"must be {' or '.join(map(repr, names))}")
                return names[value]
        return None

    def options(self, name: Any) -> Mapping[str, Option]:
        """The options of the thing of that name."""
        return options(self.find(name))

    def name_of(self, thing: Any) -> str:
        """The name under which `find` returns the class of `thing`."""
        make = type(thing)
        if make.__module__.partition(".")[0] == LIBRARY:
            for name, thing_make in self.things.items():
                if thing_make is make:
                    return name
        return f"{make.__module__}:{make.__qualname__}"  # a name of one's own is unknown where nobody imports it

    @property
    def requirement(self) -> str:
        """What a name must be."""
        return f'must be one of {", ".join(self.things)}, or "package.module:Class"'


@cache
def _choices(base: Any) -> dict[str, dict[str, str]]:
    """The fields of a base's classes that stand in place of the name: their values, and the name that each means."""
    choices: dict[str, dict[str, str]] = {}
    for name, cls in getattr(base, "by_name", {}).items():
        for field in fields(cls):
            if field.metadata.get("chooses"):
                values = get_args(hints_of(cls)[field.name])
                choices.setdefault(field.name, {}).update(dict.fromkeys(values, name))
    return choices


class ModelRegistry(Registry):
    """The models: functions that are called when the data are loaded. A table becomes a `Model`."""

    def find(self, name: Any) -> Make:
        """The function that makes the model. Raises `SettingError` if there is none."""
        check(isinstance(name, str) and (":" in name or name in self.things), "name", name, self.requirement)
        return models.find_model(name)

    def options(self, name: Any) -> dict[str, Option]:
        """The options that a table may give to the model of that name."""
        return options_of(name)

    def name_of(self, thing: Model) -> str:
        """The name of the model's function."""
        return thing.name

    @property
    def requirement(self) -> str:
        """What a name must be."""
        return f'must be one of {", ".join(self.things)}, or "package.module:function"'


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


@cache
def registry_of(kind: Any) -> Registry | None:
    """The registry whose things fit a field of this type: that of the type itself, or of a class that it extends."""
    bases = {registry.base: registry for registry in REGISTRIES.values()}
    if kind in bases or is_dataclass(kind):
        return bases.get(kind)
    for base in getattr(kind, "__mro__", ()):
        if base in bases:
            return bases[base]
    return None


def find(registry: Registry, name: Any, place: str) -> Make:
    """The thing of that name, for the table at `place`. Raises `ConfigError`, which suggests a similar name."""
    if isinstance(name, str) and name in registry.things:
        return registry.things[name]
    try:
        return registry.find(name)
    except SettingError as error:
        key = f"{place}.name"
        raise ConfigError(f"{key} = {shown(name)}: {error.right}{_hint(registry, name)}", key) from error


def _hint(registry: Registry, name: Any) -> str:
    """A hint for an unknown name: another registry that has it, or a similar name in this registry."""
    if not isinstance(name, str) or ":" in name:
        return ""
    for other in REGISTRIES.values():
        if name in other.things:
            return f"; there is {other.key}.name = {shown(name)}"
    similar = suggestion(name, registry.things)
    if not similar:
        return ""
    return f"; did you mean {similar}?"
