"""What is trained: the first lines of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch

from ..averages import Window
from ..data.federated import FederatedData, Problem
from ..methods import WeightedMean
from ..methods.server_optimisers import ServerSGD
from ..server.federation import Federation
from ..server.state import State
from ..settings.fingerprint import text
from ..settings.setting import default_of
from ..tasks import Classification, OnlyLoss
from ..vector.shown import fact
from .driver import Driver

PARTS = ("method", "local", "aggregation", "server", "sampling", "scheduler", "broadcast")
USUAL = WeightedMean(), ServerSGD()
"""The parts that are named, in this order, and those that are not, since most runs have them."""

ALWAYS = ("lr", "batch")
"""Settings that are told even if they have their default."""


def opening(driver: Driver, state: State, rounds: int, config: Mapping[str, Any]) -> Iterator[str]:
    """The lines that say what is trained: data and clients, model, method, averages, device and rounds, and which
    windows are never full.

    The `config` of an experiment file gives the data and the model their names.
    """
    facts = driver.facts()
    federation = driver.federation
    yield f"data: {', '.join(filter(None, [_named(config, 'data'), _data(federation)]))}"
    model = type(facts["model"]).__name__
    yield f"model: {fact(facts['model']).replace(model, _named(config, 'model') or model, 1)}"
    parts = [facts.get(name) for name in PARTS]
    yield f"method: {', '.join(_told(part) for part in parts if part is not None and part not in USUAL)}"
    if federation.averages:
        yield f"averages: {', '.join(f'{name} {_told(average)}' for name, average in federation.averages.items())}"
    if state.round < rounds:
        yield f"device: {_device(state.w.device)}, rounds {state.round + 1:,} to {rounds:,}"
    for name, average in federation.averages.items():
        if isinstance(average, Window) and 0 < (most := _models(average, name, state, rounds)) < average.size:
            yield f"averages.{name}.size = {average.size}: not full in this run, where it is the mean of at most {most}"


def _models(window: Window, name: str, state: State, rounds: int) -> int:
    """How many models a window will have observed after `rounds` rounds; what it forgets until then counts, too."""
    return window.count(state.averages[name]) + sum(map(window.observes, range(state.round + 1, rounds + 1)))


def _named(config: Mapping[str, Any], table: str) -> str:
    found = config.get(table, {})
    return str(found.get("name", "")) if isinstance(found, Mapping) else ""


def _data(federation: Federation) -> str:
    """The samples, what is learned of them, the clients, and the samples on which models are tested."""
    data = federation.clients.data
    problem = federation.clients.problem
    sizes = federation.clients.sizes
    shape = () if data is None else data.train.x.shape
    clients = f"{len(sizes):,}" if data is None else FederatedData.facts(data)["clients"]
    features = f" of {_number(shape[1], 'feature', 'features')}" if isinstance(shape, tuple) and len(shape) == 2 else ""
    if data is not None and not data.feature_names and getattr(data.train.x, "dtype", None) == torch.int64:
        features = ""  # they may be the words of a text
    samples = f"{int(sizes.sum()):,} samples{features}"
    tested = "" if problem.test is None else f"tested on {len(problem.test):,}"
    return ", ".join(filter(None, [samples, *_learned(problem), f"clients: {clients}", tested]))


def _learned(problem: Problem) -> Iterator[str]:
    """The task, unless it is the usual one or a loss alone, and the number of classes."""
    if not isinstance(problem.task, Classification | OnlyLoss):
        yield f"task {type(problem.task).__name__}"
    if problem.classes and not isinstance(problem.task, OnlyLoss):
        yield _number(problem.classes, "class", "classes")


def _number(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _told(thing: object) -> str:
    """A part with the settings that differ from its defaults, and those of `ALWAYS`: `FedProx(mu=0.01)`."""
    known: Any = thing
    if not hasattr(thing, "__dataclass_fields__"):
        return fact(thing)
    told = [
        f for f in fields(known) if f.init and (f.name in ALWAYS or text(getattr(known, f.name)) != text(default_of(f)))
    ]
    settings = ", ".join(f"{f.name}={_told(getattr(known, f.name))}" for f in told)
    return f"{type(thing).__name__}({settings})" if settings else type(thing).__name__


def _device(device: torch.device) -> str:
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
