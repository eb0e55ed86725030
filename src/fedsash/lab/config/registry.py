"""What an experiment file can name, and the options of each thing: the rooms' registries side by side."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from ...aggregation import AGGREGATIONS, Aggregation
from ...averages import AVERAGES, Average
from ...basics.errors import SettingError
from ...data import DATASETS, PARTITIONS
from ...data.partitions.common import Partition
from ...data.source import Dataset
from ...executors import ENGINES, Engine
from ...methods import METHODS, Method
from ...models import MODELS
from ...network.schedulers import SCHEDULERS, Scheduler
from ...network.windows import WINDOWS, Window
from ...sampling import SAMPLINGS, Sampling
from ...schedules import LOCAL_SCHEDULES, SCHEDULES, LocalSchedule, Schedule
from ...servers import SERVERS, Server
from .errors import ConfigError
from .model import Model, ModelRoom
from .rooms import Make, Room
from .words import show, suggestion

ROOMS: dict[str, Room] = {
    "methods": Room("method", METHODS, Method),
    "aggregations": Room("aggregation", AGGREGATIONS, Aggregation),
    "servers": Room("server", SERVERS, Server),
    "averages": Room("averages.NAME", AVERAGES, Average),
    "samplings": Room("sampling", SAMPLINGS, Sampling),
    "schedules": Room("local.schedule", SCHEDULES, Schedule),
    "local_schedules": Room("local.local_schedule", LOCAL_SCHEDULES, LocalSchedule),
    "partitions": Room("partition", PARTITIONS, Partition),
    "models": ModelRoom("model", MODELS, Model),
    "datasets": Room("data", DATASETS, Dataset),
    "engines": Room("engine", ENGINES, Engine),
    "schedulers": Room("scheduler", SCHEDULERS, Scheduler),
    "windows": Room("scheduler.window", WINDOWS, Window),
}
"""Every axis. A new one is a line here: its things then go wherever a field is of its base's type."""


def room_of(kind: Any) -> Room | None:
    """The room whose things a field of this type holds: that of the type, or of what an interface extends."""
    bases = {room.base: room for room in ROOMS.values()}
    if kind in bases or is_dataclass(kind):
        return bases.get(kind)
    return next((bases[base] for base in getattr(kind, "__mro__", ()) if base in bases), None)


def find(room: Room, name: Any, place: str) -> Make:
    """The thing of that name, for the table at `place`. Raises `ConfigError`, with a hint at what may be meant."""
    try:
        return room.find(name)
    except SettingError as error:
        key = f"{place}.name"
        raise ConfigError(f"{key} = {show(name)}: {error.right}{_hint(room, name)}", key) from error


def _hint(room: Room, name: Any) -> str:
    """The room that has a thing of this name, or the name of this room that is close to it."""
    if not isinstance(name, str) or ":" in name:
        return ""
    elsewhere = [other.key for other in ROOMS.values() if name in other.things]
    close = suggestion(name, room.things)
    hint = f"; did you mean {close}?" if close else ""
    return f"; there is {elsewhere[0]}.name = {show(name)}" if elsewhere else hint
