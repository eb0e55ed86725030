"""From tables to objects and back, by the types of fields.

A table describes a dataclass: its keys are the fields. The type of a field decides what its key takes:

- the base of a registry: a table that chooses one of the registry's things by its `name`
- a dataclass: a table of its fields
- a mapping of names to one of these: a table of tables
- a tuple of one of these: a list of tables
- any other type: a value, which the dataclass checks

If the type is a union with a number or a word, the number or word may replace the table. If the class has a method
`of(value)`, a value of its parameter's type may replace the table, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from ...settings.checks import TypeRefusal, checked, from_short_form, is_known, short_form
from ...settings.errors import ConfigError, shortened
from ...settings.limits import union_of
from ...settings.options import REQUIRED, Make, Option, options
from ...settings.setting import Setting, default_of, hints_of
from .errors import join, located
from .files import SHORT
from .model import Model, options_of
from .registries import Registry, find, registry_of
from .words import describe, shown, suggestion


@dataclass(frozen=True)
class Form:
    """The form of a key's value: no table, a table, or several tables by name or in order.

    `cls` is the class that one table describes, or the type of each of several. `value` is the type of
    values that are no tables, as far as TOML can write them; None if only tables are taken. `checks` says whether a
    class of settings checks such a value in the same way.
    """

    takes: Literal["value", "one", "by name", "list", "tuple"]
    cls: Any = None
    value: Any = None
    checks: bool = True


def build(make: Make, table: Any, place: str, default: Any = None) -> Any:
    """The object that `make` makes of a table at `place`. What the table leaves out is taken from `default`.

    Raises `ConfigError`.
    """
    if not isinstance(table, Mapping):
        raise _no_table(table, place)
    arguments = _arguments(make, options(make), table, place, default)
    with located(place):
        return make(**arguments)


def check_arguments(make: Make, table: Mapping[str, Any], place: str) -> None:
    """Raise `ConfigError` unless `make` can take the values of a table."""
    _arguments(make, options(make), table, place, None)


def _arguments(
    make: Make, known: Mapping[str, Option], table: Mapping[str, Any], place: str, default: Any, name_key: bool = False
) -> dict[str, Any]:
    """The arguments of `make` in a table with the `known` keys, and `name` if it chooses a thing.

    A key that the table leaves out is taken from `default` if that is of the same class; one that is required, also
    from a `default` of another class that has it. Otherwise it is left to `make`.
    """
    arguments: dict[str, Any] = {}
    same_class = type(default) is make
    for key, value in table.items():
        option = known.get(key)
        if option is not None and key != "**":
            usual = option.default
            if same_class or usual is REQUIRED:
                usual = getattr(default, key, None)
            arguments[key] = _value(make, option.kind, value, join(place, key), usual)
        elif "**" in known:
            arguments[key] = value
        else:
            raise _unknown(key, place, known, name_key)
    for name, option in known.items():
        if name in table or name == "**":
            continue
        usual = getattr(default, name, None)
        if option.default is REQUIRED and usual is None:
            key = join(place, name)
            raise ConfigError(f"{key} is missing: must be {describe(option.kind)}", key)
        if option.default is REQUIRED or (same_class and option.unless not in table):
            arguments[name] = usual
    return arguments


def _value(make: Make, kind: Any, value: Any, place: str, default: Any) -> Any:
    """The value of one key: the objects of its tables, or else the value, which a class of settings checks itself."""
    form = form_of(kind)
    in_place_of_table = form.value is not None and not isinstance(value, Mapping)
    if form.takes == "value" or in_place_of_table:
        return _leaf(make, kind, form, value, place)
    if form.takes == "one":
        usual = default if is_dataclass(default) else None
        return _object(form.cls, value, place, usual)
    if form.takes == "by name":
        return _by_name(make, form.cls, value, place)
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{place} = {shown(value)}: must be {describe(kind)}", place)
    objects = []
    for index, one in enumerate(value):
        objects.append(_value(make, form.cls, one, join(place, str(index)), None))
    if form.takes == "list":
        return objects
    return tuple(objects)


def _leaf(make: Make, kind: Any, form: Form, value: Any, place: str) -> Any:
    """A value that is no table. What does not check it itself, such as a function, gets it checked."""
    if not _is_finite(value):
        raise ConfigError(f"{place} = {shown(value)}: must be finite", place)
    if form.value is None:
        raise ConfigError(f"{place} = {shown(value)}: must be {describe(kind)}, which no file can have", place)
    if form.checks and isinstance(make, type) and issubclass(make, Setting):
        return value
    try:
        return checked(form.value, value)
    except TypeRefusal as refusal:
        requirement = refusal.requirement or f"must be {describe(kind)}"
        raise ConfigError(f"{place} = {shown(value)}: {requirement}", place) from refusal


def _is_finite(value: Any) -> bool:
    """Whether all numbers in a value are finite."""
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, float) or math.isfinite(value)


def _by_name(make: Make, kind: Any, table: Any, place: str) -> dict[str, Any]:
    """The objects of a table of tables, by the names that the user gives them."""
    if not isinstance(table, Mapping):
        raise _no_table(table, place)
    name = table.get("name")
    if isinstance(name, str):
        requirement = f"each has a table with a name of yours, such as [{place}.mine] with name = {shown(name)}"
        raise ConfigError(f"{place}.name = {shown(name)}: {requirement}", join(place, "name"))
    objects = {}
    for name, inner in table.items():
        objects[name] = _value(make, kind, inner, join(place, name), None)
    return objects


def _object(cls: Any, value: Any, place: str, default: Any) -> Any:
    """The object that a table, or a value in place of the table, describes."""
    table = dict(value) if isinstance(value, Mapping) else {SHORT: value}
    registry = registry_of(cls)
    if SHORT in table:
        default = _from_short_form(cls, table.pop(SHORT), place, registry)
        if not table:
            return default
    if registry is not None:
        return _chosen(registry, table, place, default)
    if default is None:
        return build(cls, table, place)
    return build(type(default), table, place, default)


def _from_short_form(cls: Any, value: Any, place: str, registry: Registry | None) -> Any:
    """The object that a value in place of its table describes."""
    try:
        with located(place):
            return from_short_form(cls, value)
    except TypeRefusal as refusal:
        keys = () if registry else options(cls)
        raise _no_table(value, place, registry, short_form(cls), keys) from refusal


def _chosen(registry: Registry, table: dict[str, Any], place: str, default: Any) -> Any:
    """The object for a table that chooses a thing of the registry by its name."""
    name = table.pop("name", None)
    if name is None:
        with located(place):
            name = registry.chosen(table)
    if name is None and default is not None:
        name = registry.name_of(default)
    if name is None:
        names = registry.requirement.partition(", or")[0]
        raise ConfigError(f"{place}.name is missing: {names}", join(place, "name"))
    make = find(registry, name, place)
    if registry.base is Model:
        return Model(name, _arguments(make, options_of(name), table, place, None, name_key=True))
    arguments = _arguments(make, options(make), table, place, default, name_key=True)
    with located(place):
        return make(**arguments)


def plain(value: Any, kind: Any = Any, levels: float = math.inf) -> Any:
    """An object as a table, with every field that is not None. `kind` is the type of the field that holds it.

    Tables deeper than so many `levels` are without the keys that have their defaults.
    """
    if isinstance(value, Model):
        return plain(value.table())
    form = form_of(kind)
    if is_dataclass(value):
        table = _plain_fields(value, levels)
        registry = None
        if form.takes == "one":
            registry = registry_of(form.cls)
        if registry is None:
            return table
        return {"name": registry.name_of(value)} | table
    inner = form.cls or Any
    if isinstance(value, Mapping):
        return {key: plain(one, inner, levels - 1) for key, one in value.items() if one is not None}
    if isinstance(value, tuple | list):  # one table of several is always complete
        return [plain(one, inner) for one in value]
    return value


def _plain_fields(settings: Any, levels: float) -> dict[str, Any]:
    """The fields of an object as a table, without those that are None or that its class works out."""
    cls: Any = type(settings)
    hints = hints_of(cls)
    table = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if not field.init or value is None:
            continue
        if levels < 1 and value == default_of(field):
            continue
        table[field.name] = plain(value, hints[field.name], levels - 1)
    return table


def form_of(kind: Any) -> Form:
    """The form of a key whose field has this type."""
    return _form_of(kind, repr(kind))


@cache
def _form_of(kind: Any, text: str) -> Form:
    """`text` tells unions apart that are equal but for their order."""
    tables = []
    others = []
    for member in members_of(kind):
        form = _form_of_tables(member)
        if form is not None:
            tables.append(form)
        elif member is not NoneType:
            others.append(member)
    if not tables:
        return Form("value", value=_writable(others), checks=all(map(is_known, others)))
    if not others:
        return tables[0]
    return replace(tables[0], value=kind)


def table_in(kind: Any, place: str) -> tuple[Any, str]:
    """The class of the table, or tables, in a field at `place`, and where their keys stand; None if it takes none.

    The keys of a table by name stand at `averages.NAME`, those of a list's tables at `place` itself.
    """
    form = form_of(kind)
    if form.takes in ("value", "one"):
        return form.cls, place
    if form.takes == "by name":
        place = join(place, "NAME")
    return table_in(form.cls, place)


def _form_of_tables(kind: Any) -> Form | None:
    """The form of a type that is no union, if a table or several describe its values; None if it takes a value."""
    if is_dataclass(kind) or registry_of(kind) is not None:
        return Form("one", kind)
    origin = get_origin(kind)
    members = get_args(kind)
    if origin in (dict, Mapping) and members and form_of(members[1]).takes != "value":
        return Form("by name", members[1])
    if origin in (list, tuple, Sequence) and members and form_of(members[0]).takes != "value":
        return Form("list" if origin is list else "tuple", members[0])
    return None


def _writable(kinds: list[Any]) -> Any:
    """The union of the types that TOML can write, such as no arrays and functions; None if there are none."""
    if Any in kinds:
        return Any
    known = [kind for kind in kinds if is_known(kind)]
    if not known:
        return None
    return union_of(known)


def members_of(kind: Any) -> list[Any]:
    """The types of a union. Any other type gives a list of itself."""
    if get_origin(kind) in (Union, UnionType):
        return list(get_args(kind))
    return [kind]


def _no_table(
    value: Any, place: str, registry: Registry | None = None, form: Any = None, keys: Iterable[str] = ()
) -> ConfigError:
    """The error of a value in place of a table. `form` is the type of the short form, if there is one."""
    requirement = f"must be a table, [{place}]"
    if registry is not None and isinstance(value, str):
        requirement += f" with name = {shown(value)}"
    if form:
        requirement += f", or {describe(form)}"
    elif keys:
        requirement += f", with the keys {shortened(', '.join(keys))}"
    return ConfigError(f"{place} = {shown(value)}: {requirement}", place)


def _unknown(key: str, place: str, known: Mapping[str, Option], name_key: bool) -> ConfigError:
    """The error of an unknown key. It may be meant for a table inside."""
    similar = ""
    for option in known.values():
        if is_dataclass(option.default) and key in vars(option.default):
            similar = join(option.name, key)
            break
    names = list(known)
    if name_key:
        names.append("name")
    if not similar:
        similar = suggestion(key, names)
    line = f"unknown key {join(place, key)}"
    if similar:
        line += f"; did you mean {join(place, similar)}?"
    else:
        line += f"; known are {', '.join(names)}"
    return ConfigError(line, join(place, key))
