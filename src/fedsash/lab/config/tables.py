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
from ...settings.setting import Setting, hints_of
from .errors import join, located
from .files import SHORT
from .model import Model, options_of
from .registries import Registry, find, registry_of
from .words import describe, shown, suggestion


@dataclass(frozen=True)
class Form:
    """What a key takes: a value, a table, or several tables by name or in order.

    `cls` is the class that one table describes, or the type of each of several. `value` is the type of what may stand
    there without being a table, as far as TOML can write it; None if only tables may. `checks` says whether a class of
    settings checks such a value in the same way.
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
    given = _arguments(make, options(make), table, place, default)
    with located(place):
        return make(**given)


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
    taken: dict[str, Any] = {}
    same_class = type(default) is make
    for key, value in table.items():
        option = known.get(key)
        if option is not None and key != "**":
            before = getattr(default, key, None) if same_class or option.default is REQUIRED else option.default
            taken[key] = _value(make, option.kind, value, join(place, key), before)
        elif "**" in known:
            taken[key] = value
        else:
            raise _unknown(key, place, known, name_key)
    for name, option in known.items():
        if name in table or name == "**":
            continue
        before = getattr(default, name, None)
        if same_class and option.unless not in table:
            taken[name] = before
        elif option.default is REQUIRED and before is None:
            key = join(place, name)
            raise ConfigError(f"{key} is missing: must be {describe(option.kind)}", key)
        elif option.default is REQUIRED:
            taken[name] = before
    return taken


def _value(make: Make, kind: Any, value: Any, place: str, default: Any) -> Any:
    """The value of one key: the objects of its tables, or else the value, which a class of settings checks itself."""
    form = form_of(kind)
    if form.takes == "value" or (form.value is not None and not isinstance(value, Mapping)):
        return _leaf(make, kind, form, value, place)
    if form.takes == "by name":
        return _by_name(make, form.cls, value, place)
    if form.takes != "one":
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{place} = {shown(value)}: must be {describe(kind)}", place)
        objects = [_value(make, form.cls, one, join(place, str(i)), None) for i, one in enumerate(value)]
        return objects if form.takes == "list" else tuple(objects)
    return _object(form.cls, value, place, default if is_dataclass(default) else None)


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
        right = f"each has a table with a name of yours, such as [{place}.mine] with name = {shown(name)}"
        raise ConfigError(f"{place}.name = {shown(name)}: {right}", join(place, "name"))
    return {name: _value(make, kind, inner, join(place, name), None) for name, inner in table.items()}


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
    return build(cls if default is None else type(default), table, place, default)


def _from_short_form(cls: Any, value: Any, place: str, registry: Registry | None) -> Any:
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
        names = registry.right.partition(", or")[0]
        raise ConfigError(f"{place}.name is missing: {names}", join(place, "name"))
    make = find(registry, name, place)
    if registry.base is Model:
        given = _arguments(make, options_of(name), table, place, None, name_key=True)
        return Model(name, given)
    given = _arguments(make, options(make), table, place, default, name_key=True)
    with located(place):
        return make(**given)


def plain(value: Any, kind: Any = Any) -> Any:
    """An object as a table, with every field that is not None. `kind` is the type of the field that holds it."""
    if isinstance(value, Model):
        return plain(value.table())
    form = form_of(kind)
    if is_dataclass(value):
        registry = registry_of(form.cls) if form.takes == "one" else None
        name = {} if registry is None else {"name": registry.name_of(value)}
        return name | _plain_fields(value)
    inner = Any if form.cls is None else form.cls
    if isinstance(value, Mapping):
        return {key: plain(one, inner) for key, one in value.items() if one is not None}
    if isinstance(value, tuple | list):
        return [plain(one, inner) for one in value]
    return value


def _plain_fields(settings: Any) -> dict[str, Any]:
    cls: Any = type(settings)
    hints = hints_of(cls)
    table = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.init and value is not None:
            table[field.name] = plain(value, hints[field.name])
    return table


def form_of(kind: Any) -> Form:
    """What a key with a field of this type takes."""
    return _form_of(kind, repr(kind))


@cache
def _form_of(kind: Any, text: str) -> Form:
    """`text` tells unions apart that are equal but for their order."""
    members = members_of(kind)
    tables = [form for form in map(_form_of_tables, members) if form is not None]
    others = [one for one in members if one is not NoneType and _form_of_tables(one) is None]
    if not tables:
        return Form("value", value=_writable(others), checks=all(map(is_known, others)))
    return replace(tables[0], value=kind if others else None)


def _form_of_tables(kind: Any) -> Form | None:
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
    return union_of(known) if known else None


def members_of(kind: Any) -> list[Any]:
    """The types of a union. Any other type gives a list of itself."""
    return list(get_args(kind)) if get_origin(kind) in (Union, UnionType) else [kind]


def _no_table(
    value: Any, place: str, registry: Registry | None = None, form: Any = None, keys: Iterable[str] = ()
) -> ConfigError:
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
    inside = [join(o.name, key) for o in known.values() if is_dataclass(o.default) and key in vars(o.default)]
    names = [*known, "name"] if name_key else list(known)
    close = inside[0] if inside else suggestion(key, names)
    hint = f"; did you mean {join(place, close)}?" if close else f"; known are {', '.join(names)}"
    return ConfigError(f"unknown key {join(place, key)}{hint}", join(place, key))
