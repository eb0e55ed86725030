"""Strategies for Hypothesis: all registered parts, and small federations of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from hypothesis import strategies as st

from ..averages import AVERAGES, Average
from ..client import SGD, LocalTraining
from ..methods import AGGREGATIONS, METHODS, Aggregation, Method
from ..methods.sampling import SAMPLINGS, Sampling, Uniform
from ..methods.schedules import LOCAL_SCHEDULES, SCHEDULES, LocalSchedule, Schedule
from ..methods.server_optimisers import SERVERS, Server
from ..server.broadcast import Broadcast
from ..server.federation import Federation
from .examples import examples
from .worlds import small_data, small_federation

T = TypeVar("T")

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
