"""From tables to objects and back.

A table is a dataclass: its keys are the fields, and a value is checked against its field's type. The `name` in a table
chooses the class where there are several.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ...broadcast import Broadcast
from .errors import ConfigError, join, located
from .model import Model
from .registry import REQUIRED, ROOMS, Make, Option, Room, describe, options, show, suggestion

_ROOMS = {room.key: room for room in ROOMS.values()} | {"partition.inner": ROOMS["partitions"]}
_STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


def build(make: Make, table: Any, place: str, default: Any = None) -> Any:
    """Call `make` with the values of a table; for what the table leaves out see `_arguments`."""
    arguments = _arguments(make, _mapping(table, place), place, default)
    with located(place):
        return make(**arguments)


def plain(value: Any, place: str = "") -> Any:
    """An object as a table holds it, with every field but those that are None."""
    if isinstance(value, Model):
        return {"name": value.name} | plain(value.options, place)
    if is_dataclass(value):
        values = {f.name: getattr(value, f.name) for f in fields(value)}
        table = {key: plain(inner, join(place, key)) for key, inner in values.items() if inner is not None}
        room = _room(place)
        return {"name": room.name_of(value)} | table if room else table
    if isinstance(value, Mapping):
        return {key: plain(inner, join(place, key)) for key, inner in value.items() if inner is not None}
    return [plain(inner, place) for inner in value] if isinstance(value, tuple | list) else value


def _named(room: Room, table: Any, place: str, default: Any = None) -> Any:
    """The thing that a table names."""
    rest = dict(_mapping(table, place))
    if "name" not in rest and default is None:
        raise ConfigError(f"{place}.name is missing: must be one of {', '.join(room.things)}")
    chosen = default.name if isinstance(default, Model) else room.name_of(default)
    name = rest.pop("name", chosen)
    if place == "sampling" and "fraction" in rest:
        default = None  # its count would contradict the fraction
    with located(place):
        make = room.find(name)
    if place == "model":
        return Model(name, _arguments(make, rest, place))
    return build(make, rest, place, default)


def _arguments(make: Make, table: Mapping[str, Any], place: str, default: Any = None) -> dict[str, Any]:
    """The arguments of `make` in a table.

    What the table leaves out is taken from `default` if that is of the same class, else from the class's own defaults;
    an option without a default is taken from any `default` that has it.
    """
    known = options(make)
    free = known.pop("**", None)
    unknown = [key for key in table if key not in known]
    if unknown and not free:
        raise ConfigError(_unknown(unknown[0], place, [*known, "name"] if _room(place) else [*known]))
    arguments = {key: table[key] for key in unknown}
    for key, option in known.items():
        here, fallback = join(place, key), option.default
        if type(default) is make or fallback is REQUIRED:
            fallback = getattr(default, key, fallback)
        if key in table:
            arguments[key] = _value(table[key], option, here, fallback)
        elif fallback is REQUIRED:
            raise ConfigError(f"{here} is missing: must be {describe(option.kind)}")
        else:
            arguments[key] = fallback
    return arguments


def _value(value: Any, option: Option, place: str, default: Any) -> Any:
    """The value of one key: an object where it is a table, anything else checked against its type."""
    if place == "averages":
        return {name: _named(ROOMS["averages"], t, join(place, name)) for name, t in _mapping(value, place).items()}
    if place == "broadcast":
        return build(Broadcast, {"average": value} if isinstance(value, str) else value, place)
    if room := _room(place):
        return _named(room, value, place, default)
    if is_dataclass(option.kind):
        return build(type(default), value, place, default)
    return _convert(value, option.kind, place)


def _convert(value: Any, kind: Any, place: str) -> Any:
    """A value of that type. By way of JSON, in which pydantic takes lists for tuples and is strict about all else."""
    try:
        return _adapter(kind).validate_json(json.dumps(value))
    except (ValidationError, TypeError):
        right = "finite" if isinstance(value, float) and not math.isfinite(value) else describe(kind)
        raise ConfigError(f"{place} = {show(value)}: must be {right}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Making one takes longer than using it, and a sweep uses thousands."""
    return TypeAdapter(kind, config=_STRICT)


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        name = f" with name = {show(value)}" if isinstance(value, str) and _room(place) else ""
        raise ConfigError(f"{place} = {show(value)}: must be a table, [{place}]{name}")
    return value


def _room(place: str) -> Room | None:
    """The room whose things the table at `place` names, if it is such a table."""
    return _ROOMS.get(re.sub(r"^averages\.[^.]+$", "averages.*", place))


def _unknown(key: str, place: str, known: list[str]) -> str:
    close = suggestion(key, known)
    hint = f"; did you mean {join(place, close)}?" if close else f"; known are {', '.join(known)}"
    return f"unknown key {join(place, key)}{hint}"
