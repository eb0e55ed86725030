"""All keys of an experiment file: where they stand, what they take, their defaults and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from ...settings.options import REQUIRED, Make, Option, options
from .errors import join
from .experiment import Experiment
from .network import NetworkExperiment
from .own import OwnExperiment
from .registries import registry_of
from .tables import plain
from .words import describe, show

OF_OWN = ("built_by", "options")
"""The keys that only an experiment has whose federation is made in Python."""


@dataclass(frozen=True)
class Key:
    """One key of an experiment file, such as `local.lr`.

    `make` is the class or function that takes its value. `thing` is the name that a table must have for this key:
    `method.mu` needs `method.name = "fedprox"`; empty if the key is always there. `table` says whether the value is a
    table of dataclass fields, and not one that chooses a thing by its name.
    """

    path: str
    option: Option
    make: Make
    thing: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def default(self) -> str:
        """The default as in an experiment file."""
        if self.option.default is REQUIRED:
            return "(required)"
        return "(not set)" if self.option.default is None else show(plain(self.option.default, self.option.kind))

    @property
    def meaning(self) -> str:
        """What it means; empty if its class does not say it."""
        return self.option.meaning

    @property
    def takes(self) -> str:
        """What its value may be, in words: a type, and the limits of its numbers."""
        limit = "" if self.option.limit is None else self.option.limit.listed
        return "; ".join(filter(None, (describe(self.option.kind), limit)))

    @property
    def table(self) -> Any:
        """The class of the table that is its value; None if it is a plain value, or a thing that a registry has."""
        kinds = [kind for kind, place in tables_in(self.option.kind, self.path) if place == self.path]
        return next((kind for kind in kinds if registry_of(kind) is None), None)


@cache
def keys() -> list[Key]:
    """Every key that an experiment file can have, table by table."""
    every = options(Experiment)
    of_network = [name for name in options(NetworkExperiment) if name not in every]
    return [
        *_below(every, Experiment, "", "", Experiment(), ()),
        *_of(NetworkExperiment(), of_network),
        *_of(OwnExperiment(), OF_OWN),
    ]


def _of(experiment: Experiment, names: Iterable[str]) -> Iterator[Key]:
    """The keys that only this kind of experiment has."""
    kind: Make = type(experiment)
    return _below({name: options(kind)[name] for name in names}, kind, "", "", experiment, ())


def keys_of(place: str, make: Make, known: Mapping[str, Option], default: Any = None, thing: str = "") -> list[Key]:
    """The keys of one table at `place`, without those of tables in it; `default` is the object for a missing table.

    What is required is taken from it, even if it is another thing.
    """
    found = []
    for option in known.values():
        said = getattr(default, option.name, None)
        if type(default) is make or (option.default is REQUIRED and said is not None):
            option = replace(option, default=said)
        found += [Key(join(place, option.name), option, make, thing)] if option.name != "**" else []
    return found


def _below(
    known: Mapping[str, Option], make: Make, place: str, thing: str, default: Any, above: tuple[Any, ...]
) -> Iterator[Key]:
    """The keys of a table, each followed by the keys of tables in it. `above` are the types of tables around it."""
    for key in keys_of(place, make, known, default, thing):
        yield key
        for kind, inner in tables_in(key.option.kind, key.path):
            if kind in above:  # a chain of schedules holds schedules
                continue
            around, value, registry = (*above, kind), key.option.default, registry_of(kind)
            if registry is None:
                yield from _below(options(kind), kind, inner, "", value, around)
                continue
            for name in registry.things:
                yield from _below(registry.options(name), registry.find(name), inner, name, value, around)


def tables_in(kind: Any, place: str) -> Iterator[tuple[Any, str]]:
    """The types with a table in the type of the field at `place`, and where their keys stand."""
    if is_dataclass(kind) or registry_of(kind) is not None:
        yield kind, place
        return
    inner = join(place, "NAME") if get_origin(kind) in (dict, Mapping) else place
    for one in get_args(kind) if get_origin(kind) in (Union, UnionType, tuple, dict, Mapping) else ():
        yield from tables_in(one, inner)
