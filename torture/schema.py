"""Every key that an experiment file can have, from the classes themselves: a new key is found without a line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from fedsash.lab.config import NetworkExperiment
from fedsash.lab.config.registries import REGISTRIES, registry_of
from fedsash.settings.limits import Limit
from fedsash.settings.options import REQUIRED, Option, options

Place = tuple[str, ...]
EXAMPLES: dict[Any, Any] = {int: 2, float: 0.5, str: "./nowhere", bool: True}
"""What a required key gets, by its type."""


@dataclass(frozen=True)
class Key:
    """A key of an experiment file: its place, type, limit, and the values of other keys without which it is unknown."""

    place: Place
    kind: Any
    needs: Mapping[Place, Any]
    limit: Limit | None = None


def keys() -> list[Key]:
    """All keys, with those of every thing in every registry."""
    return [key for option in options(NetworkExperiment).values() for key in _keys((option.name,), option, {})]


def _keys(place: Place, option: Option, needs: Mapping[Place, Any], above: tuple[str, ...] = ()) -> Iterator[Key]:
    """The key at a place, and those below. `above` are the registries around it, which end the descent."""
    yield Key(place, option.kind, needs, option.limit)
    yield from _below(place, option.kind, needs, above)


def _below(place: Place, kind: Any, needs: Mapping[Place, Any], above: tuple[str, ...]) -> Iterator[Key]:
    """The keys in the tables that a value of this type may be."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for member in members:
        registry = registry_of(member)
        if registry is not None:
            yield Key((*place, "name"), str, needs)
            if registry.key in above:
                continue
            for name in registry.things:
                chosen = {**needs, (*place, "name"): name}
                yield from _of_options(place, registry.options(name), chosen, (*above, registry.key))
        elif is_dataclass(member):
            yield from _of_options(place, options(member), needs, above)  # type: ignore[arg-type]
        elif get_origin(member) is Mapping and registry_of(get_args(member)[1]) is not None:
            inner = get_args(member)[1]
            yield Key((*place, "a"), inner, needs)
            yield from _below((*place, "a"), inner, needs, above)


def _of_options(
    place: Place, known: Mapping[str, Option], needs: Mapping[Place, Any], above: tuple[str, ...]
) -> Iterator[Key]:
    """The keys of a table with these options, each of which needs those that are required."""
    required = {(*place, o.name): example(o.kind) for o in known.values() if o.default is REQUIRED}
    for option in known.values():
        if option.name != "**":
            yield from _keys((*place, option.name), option, {**needs, **required}, above)


def example(kind: Any) -> Any:
    """A value that fits a type."""
    registry = registry_of(kind)
    if registry is not None:
        name = next(iter(registry.things))
        given = {o.name: example(o.kind) for o in registry.options(name).values() if o.default is REQUIRED}
        return {"name": name, **given}
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, UnionType):
        return example(arguments[0])
    if origin in (tuple, list):
        return [example(arguments[0])]
    if origin in (dict, Mapping) or is_dataclass(kind):
        return {}
    return EXAMPLES.get(kind, 1)


NAMES = sorted({name for registry in REGISTRIES.values() for name in registry.things})
"""Every registered name: right somewhere, and wrong almost everywhere."""
