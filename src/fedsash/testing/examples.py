"""Examples of all classes in a registry, and strategies for Hypothesis that draw them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import strategies as st

from ..averages import AVERAGES, Average
from ..client import SGD, LocalTraining
from ..methods import AGGREGATIONS, METHODS, Aggregation, Method
from ..methods.sampling import SAMPLINGS, FixedClients, Function, Sampling, Uniform
from ..methods.schedules import (
    LOCAL_SCHEDULES,
    SCHEDULES,
    Chained,
    Cyclic,
    Exponential,
    LocalSchedule,
    Schedule,
    Warmup,
)
from ..methods.server_optimisers import SERVERS, Server
from ..server.broadcast import Broadcast
from ..server.federation import Federation
from ..vector.arrays import Ints
from .worlds import small_data, small_federation

T = TypeVar("T")


def first_four(round: int, sizes: Ints, seed: int) -> Ints:
    """Four neighbours on a ring of clients; each round starts one client later."""
    return (round + np.arange(4)) % len(sizes)


VALUES: dict[type, dict[str, Any]] = {
    Uniform: {"count": 4},
    FixedClients: {"rounds": ((0, 3), (5,), (1, 2, 4))},
    Function: {"function": first_four},
    Chained: {"schedules": (Exponential(0.9), Cyclic(0, 3, 0.001), Warmup(2))},
}
"""Values for fields that have no default and can't be chosen by their type."""


def examples(registry: Mapping[str, type[T]]) -> dict[str, T]:
    """Instances of every class in a registry (`METHODS`, `AVERAGES`, ...), by descriptive names.

    Fields have their defaults; required integers are 2, required numbers 0.5. For each field with a choice of words
    there is one more instance for each other word: `"scaffold"`, `"scaffold-option=I"`.
    """
    instances: dict[str, T] = {}
    for name, make in registry.items():
        required = _required(make)
        instances[name] = make(**required)
        for field, word in _choices(make, instances[name]):
            instances[f"{name}-{field}={word}"] = make(**required | {field: word})
    return instances


def _required(make: Any) -> dict[str, Any]:
    """Values for the fields without a default."""
    values = dict(VALUES.get(make, {}))
    of_types = {int: 2, float: 0.5}
    hints = get_type_hints(make)
    for field in _fields(make):
        is_required = field.default is MISSING and field.default_factory is MISSING
        if is_required and field.name not in values:
            values[field.name] = of_types[hints[field.name]]
    return values


def _choices(make: Any, example: Any) -> Iterator[tuple[str, str]]:
    """Each field with a choice of words, with each word that is not its value in `example`."""
    hints = get_type_hints(make)
    for field in _fields(make):
        if get_origin(hints[field.name]) is not Literal:
            continue
        for word in get_args(hints[field.name]):
            if word != getattr(example, field.name):
                yield field.name, word


def _fields(make: Any) -> list[Field[Any]]:
    """The fields of a class's `__init__`."""
    return [field for field in fields(make) if field.init]


BROADCASTS = (None, Broadcast("it", 2), Broadcast("it", 2, "before"), Broadcast("it", 2, "code"))


def _of(registry: Mapping[str, type[T]]) -> st.SearchStrategy[T]:
    return st.sampled_from(list(examples(registry).values()))


def methods() -> st.SearchStrategy[Method]:
    """Every method in `METHODS`, and every variant of it."""
    return _of(METHODS)


def aggregations() -> st.SearchStrategy[Aggregation]:
    """Every aggregation in `AGGREGATIONS` that goes with every method, and every variant of it."""
    return _of({name: rule for name, rule in AGGREGATIONS.items() if rule.least})


def servers() -> st.SearchStrategy[Server]:
    """Every server optimiser in `SERVERS`, and every variant of it."""
    return _of(SERVERS)


def averages() -> st.SearchStrategy[Average]:
    """Every average in `AVERAGES`, and every variant of it."""
    return _of(AVERAGES)


def samplings() -> st.SearchStrategy[Sampling]:
    """Every sampling in `SAMPLINGS`, for six clients."""
    return _of(SAMPLINGS)


def schedules() -> st.SearchStrategy[Schedule]:
    """Every schedule by round in `SCHEDULES`, and every variant of it."""
    return _of(SCHEDULES)


def local_schedules() -> st.SearchStrategy[LocalSchedule]:
    """Every schedule by local step in `LOCAL_SCHEDULES`."""
    return _of(LOCAL_SCHEDULES)


@st.composite
def local_trainings(draw: st.DrawFn) -> LocalTraining:
    """Settings of local training by SGD: by epochs or by steps, with and without momentum, weight decay, clipping."""
    length: dict[str, Any] = draw(st.sampled_from([{"epochs": 1}, {"epochs": 2}, {"steps": 3}, {"steps": (1, 4)}]))
    if "epochs" in length:
        length["schedule"] = draw(schedules())
    return LocalTraining(
        lr=draw(st.sampled_from([0.01, 0.1])),
        batch=draw(st.sampled_from([1, 5, "full"])),
        optimiser=SGD(momentum=draw(st.sampled_from([0.0, 0.5])), weight_decay=draw(st.sampled_from([0.0, 0.01]))),
        clip=draw(st.sampled_from([None, 1.0])),
        local_schedule=draw(local_schedules()),
        **length,
    )


@st.composite
def federations(draw: st.DrawFn, /, **settings: Any) -> Federation:
    """Small federations of two to six clients, with any parts that fit together. The given `settings` are fixed."""
    sizes = draw(st.lists(st.integers(1, 15), min_size=2, max_size=6))
    drawn: dict[str, Any] = {
        "data": small_data(tuple(sizes)),
        "method": draw(methods()),
        "local": draw(local_trainings()),
        "aggregation": draw(aggregations()),
        "server": draw(servers()),
        "averages": {"it": draw(averages())},
        "broadcast": draw(st.sampled_from(BROADCASTS)),
        "sampling": Uniform(draw(st.integers(1, len(sizes)))),
        "seed": draw(st.integers(0, 2**31)),
    }
    return small_federation(**drawn | settings)
