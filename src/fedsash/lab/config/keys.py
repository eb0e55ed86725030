"""All keys of an experiment file: where they stand, what they take, their defaults and what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ...settings.options import REQUIRED, Make, Option, options
from .errors import join
from .experiment import Experiment, OwnExperiment
from .network import NetworkExperiment
from .registries import registry_of
from .tables import plain, table_in
from .words import describe, show


@dataclass(frozen=True)
class Key:
    """One key of an experiment file, such as `local.lr`.

    `thing` is the name that a table must have for this key: `method.mu` needs `method.name = "fedprox"`; empty if the
    key is always there.
    """

    path: str
    option: Option
    thing: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def default(self) -> str:
        """The default as in an experiment file."""
        value = self.option.default
        if value is REQUIRED:
            return "(required)"
        if value is None:
            return "(not set)"
        return show(plain(value, self.option.kind))

    @property
    def meaning(self) -> str:
        """What it means; empty if its class does not say it."""
        return self.option.meaning

    @property
    def takes(self) -> str:
        """What its value may be, in words: a type, and the limits of its numbers."""
        kind = describe(self.option.kind)
        limit = self.option.limit
        if limit is None or not limit.listed:
            return kind
        return f"{kind}; {limit.listed}"

    @property
    def table(self) -> Any:
        """The class of the table that is its value; None if it is a plain value, or a thing that a registry has."""
        kind, place = table_in(self.option.kind, self.path)
        if kind is None or place != self.path or registry_of(kind) is not None:
            return None
        return kind


@cache
def keys() -> list[Key]:
    """Every key that an experiment file can have, table by table."""
    return [
        *_below(options(Experiment), Experiment, "", "", Experiment(), ()),
        *_only_of(NetworkExperiment()),
        *_only_of(OwnExperiment()),
    ]


def _only_of(experiment: Experiment) -> Iterator[Key]:
    """The keys that only this kind of experiment has."""
    kind: Make = type(experiment)
    usual = options(Experiment)
    more = {name: option for name, option in options(kind).items() if name not in usual}
    return _below(more, kind, "", "", experiment, ())


def keys_of(place: str, make: Make, known: Mapping[str, Option], default: Any = None, thing: str = "") -> list[Key]:
    """The keys of one table at `place`, without those of tables in it; `default` is the object for a missing table.

    What is required is taken from it, even if it is another thing.
    """
    of_table = []
    for option in known.values():
        if option.name == "**":
            continue
        value = getattr(default, option.name, None)
        if type(default) is make or (option.default is REQUIRED and value is not None):
            option = replace(option, default=value)
        of_table.append(Key(join(place, option.name), option, thing))
    return of_table


def _below(
    known: Mapping[str, Option], make: Make, place: str, thing: str, default: Any, above: tuple[Any, ...]
) -> Iterator[Key]:
    """The keys of a table, each followed by the keys of tables in it. `above` are the types of tables around it."""
    for key in keys_of(place, make, known, default, thing):
        yield key
        kind, inner = table_in(key.option.kind, key.path)
        if kind is None or kind in above:  # a chain of schedules holds schedules
            continue
        around = (*above, kind)
        value = key.option.default
        registry = registry_of(kind)
        if registry is None:
            yield from _below(options(kind), kind, inner, "", value, around)
            continue
        for name in registry.things:
            yield from _below(registry.options(name), registry.find(name), inner, name, value, around)
