"""From tables to objects and back, by the types of fields.

A table describes a dataclass: its keys are the fields. The type of a field decides what its key takes:

- the base of a registry: a table that chooses one of the registry's things by its `name`
- a dataclass: a table of its fields
- a mapping of names to one of these: a table of tables
- a tuple of one of these: a list of tables
- any other type: a value of this type

If the type is a union with a number or a word, the number or word may replace the table. If the class has a method
`of(value)`, a value of its parameter's type may replace the table, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from ...settings.checks import TypeRefusal, checked, from_short_form, is_known, short_form
from ...settings.errors import shortened
from ...settings.limits import one_of
from ...settings.setting import hints_of
from .errors import ConfigError, join, located
from .files import SHORT
from .model import Model
from .registries import find, registry_of
from .registry import REQUIRED, Make, Option, Registry, options
from .words import describe, shown, suggestion


def build(make: Make, table: Any, place: str, default: Any = None) -> Any:
    """Call `make` with its `arguments` in a table."""
    given = arguments(make, table, place, default)
    with located(place):
        return make(**given)


def arguments(make: Make, table: Any, place: str, default: Any = None) -> dict[str, Any]:
    """The values of a table, as what `make` takes. See `_arguments` for keys that the table leaves out."""
    return _arguments(options(make), make, _mapping(table, place), place, default)


def plain(value: Any, kind: Any = Any) -> Any:
    """An object as a table, with every field that is not None. `kind` is the type of the field that holds it."""
    if isinstance(value, Model):
        return plain(value.table())
    if is_dataclass(value):
        cls: Any = type(value)
        hints = hints_of(cls)
        table = plain({f.name: plain(getattr(value, f.name), hints[f.name]) for f in fields(value) if f.init})
        registries = [registry for one in _members(kind) if (registry := registry_of(one))]
        return {"name": registries[0].name_of(value)} | table if registries else table
    if isinstance(value, Mapping):
        inner = _element(kind) or Any
        return {key: plain(one, inner) for key, one in value.items() if one is not None}
    return [plain(one, _listed(kind) or Any) for one in value] if isinstance(value, tuple | list) else value


def _value(value: Any, kind: Any, place: str, default: Any) -> Any:
    """The value of one key: an object if its type has a table, otherwise the value, checked against its type."""
    if (inner := _listed(kind)) and isinstance(value, list | tuple):
        return tuple(_value(one, inner, join(place, str(i)), None) for i, one in enumerate(value))
    members = _members(kind)
    tables = [one for one in members if _has_table(one)]
    others = [one for one in members if one not in (*tables, NoneType)]
    if not tables or (others and not isinstance(value, Mapping)):
        return _convert(value, kind, place)
    if inner := _element(tables[0]):
        named = _mapping(value, place)
        if isinstance(named.get("name"), str):
            right = f"each has a table with a name of yours, such as [{place}.mine] with name = {shown(named['name'])}"
            raise ConfigError(f"{place}.name = {shown(named['name'])}: {right}", join(place, "name"))
        return {name: _value(one, inner, join(place, name), None) for name, one in named.items()}
    return _object(tables[0], value, place, default if is_dataclass(default) else None)


def _object(kind: Any, value: Any, place: str, default: Any) -> Any:
    """The object that a table, or a value in place of the table, describes."""
    registry = registry_of(kind)
    table = dict(value) if isinstance(value, Mapping) else {SHORT: value}
    if SHORT in table:
        word = table.pop(SHORT)
        try:
            with located(place):
                default = from_short_form(kind, word)
        except TypeRefusal as refusal:
            known = () if registry else options(kind)
            raise _no_table(word, place, registry, short_form(kind), known) from refusal
        if not table:
            return default
    if registry is not None:
        return _named(registry, table, place, default)
    return build(kind if default is None else type(default), table, place, default)


def _named(registry: Registry, table: dict[str, Any], place: str, default: Any) -> Any:
    """The object for a table that chooses a thing of the registry by its name."""
    with located(place):
        chosen = None if "name" in table else registry.chosen(table)
    if chosen:
        table["name"] = chosen
    if "name" not in table and default is None:
        raise ConfigError(f"{place}.name is missing: {registry.right.partition(', or')[0]}", join(place, "name"))
    name = table.pop("name", None if default is None else registry.name_of(default))
    make = find(registry, name, place)
    arguments = _arguments(registry.options(name), make, table, place, registry.settings(default), ["name"])
    with located(place):
        return registry.made(name, arguments)


def _arguments(
    known: Mapping[str, Option],
    make: Make,
    table: Mapping[str, Any],
    place: str,
    default: Any,
    more: Iterable[str] = (),
) -> dict[str, Any]:
    """The arguments of `make` in a table. `more` are keys that the table may have in addition to the `known` ones.

    For an option that the table leaves out, the value is taken from `default` if `default` is of the same class,
    otherwise from the class's own defaults. An option that is required is taken from any `default` that has it.
    """
    fixed = {name: option for name, option in known.items() if name != "**"}
    unknown = [key for key in table if key not in fixed]
    if unknown and "**" not in known:
        tables = [o.name for o in fixed.values() if is_dataclass(o.default) and unknown[0] in vars(o.default)]
        raise _unknown(unknown[0], place, [*fixed, *more], *(join(table, unknown[0]) for table in tables))
    arguments = {key: table[key] for key in unknown}
    for name, option in fixed.items():
        here, fallback = join(place, name), option.default
        said = getattr(default, name, None)
        if (type(default) is make and option.unless not in table) or (fallback is REQUIRED and said is not None):
            fallback = said
        if name in table:
            arguments[name] = _value(table[name], option.kind, here, fallback)
        elif fallback is REQUIRED:
            raise ConfigError(f"{here} is missing: must be {describe(option.kind)}", here)
        else:
            arguments[name] = fallback
    return arguments


def _members(kind: Any) -> list[Any]:
    """The types of a union. Any other type gives a list of itself."""
    return list(get_args(kind)) if get_origin(kind) in (Union, UnionType) else [kind]


def _element(kind: Any) -> Any:
    """The type of the tables in a table of tables. None if the type is not a table of tables."""
    arguments = get_args(kind)
    return arguments[1] if get_origin(kind) in (dict, Mapping) and _has_table(arguments[1]) else None


def _listed(kind: Any) -> Any:
    """The type of the tables in a list of tables. None if the type is not a list of tables."""
    arguments = get_args(kind)
    return arguments[0] if get_origin(kind) is tuple and _has_table(arguments[0]) else None


def _has_table(kind: Any) -> bool:
    return registry_of(kind) is not None or is_dataclass(kind) or _element(kind) is not None


def _convert(value: Any, kind: Any, place: str) -> Any:
    """The value, checked against the type."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place} = {shown(value)}: must be finite", place)
    try:
        return checked(_writable(kind), value)
    except TypeRefusal as refusal:
        raise ConfigError(f"{place} = {shown(value)}: must be {describe(kind)}", place) from refusal


@cache
def _writable(kind: Any) -> Any:
    """The type without the members of a union that TOML can't write, such as arrays and functions."""
    members = _members(kind)
    writable = [member for member in members if is_known(member)]
    return one_of(writable) if len(members) > len(writable) > 0 else kind


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _no_table(value, place)
    return value


def _no_table(
    value: Any, place: str, registry: Registry | None = None, form: Any = None, keys: Iterable[str] = ()
) -> ConfigError:
    name = f" with name = {shown(value)}" if isinstance(value, str) and registry else ""
    inside = f", with the keys {shortened(', '.join(keys))}" if keys and not form else ""
    instead = f", or {describe(form)}" if form else ""
    return ConfigError(f"{place} = {shown(value)}: must be a table, [{place}]{name}{inside}{instead}", place)


def _unknown(key: str, place: str, known: list[str], *inside: str) -> ConfigError:
    """The error of an unknown key; `inside` are tables' keys below `place` with the same name."""
    close = inside[0] if inside else suggestion(key, known)
    hint = f"; did you mean {join(place, close)}?" if close else f"; known are {', '.join(known)}"
    return ConfigError(f"unknown key {join(place, key)}{hint}", join(place, key))
