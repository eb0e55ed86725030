"""The first lines of a session, which say what is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch

from ..averages import Window
from ..data.federated import FederatedData
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
"""The parts that are named, in this order."""
USUAL = (WeightedMean(), ServerSGD())
"""The parts that are not named, since most runs have them."""

ALWAYS = ("lr", "batch")
"""Settings that are named even if they have their default."""


def opening(driver: Driver, state: State, rounds: int, config: Mapping[str, Any]) -> Iterator[str]:
    """The lines that say what is trained: data and clients, model, method, averages, device and rounds, and which
    windows are never full.

    The `config` of an experiment file gives the data and the model their names.
    """
    facts = driver.facts()
    federation = driver.federation
    yield f"data: {', '.join(_data_facts(config, federation))}"
    class_name = type(facts["model"]).__name__
    model_name = _name_in(config, "model") or class_name
    yield f"model: {fact(facts['model']).replace(class_name, model_name, 1)}"
    parts = [facts.get(name) for name in PARTS]
    yield f"method: {', '.join(_described(part) for part in parts if part is not None and part not in USUAL)}"
    if federation.averages:
        averages = [f"{name} {_described(average)}" for name, average in federation.averages.items()]
        yield f"averages: {', '.join(averages)}"
    if state.round < rounds:
        yield f"device: {_device(state.w.device)}, rounds {state.round + 1:,} to {rounds:,}"
    for name, average in federation.averages.items():
        if isinstance(average, Window):
            most = _observed(average, name, state, rounds)
            if 0 < most < average.size:
                full = f"not full in this run, where it is the mean of at most {most}"
                yield f"averages.{name}.size = {average.size}: {full}"


def _observed(window: Window, name: str, state: State, rounds: int) -> int:
    """How many models a window will have observed after `rounds` rounds; what it forgets until then counts, too."""
    return window.count(state.averages[name]) + sum(map(window.observes, range(state.round + 1, rounds + 1)))


def _name_in(config: Mapping[str, Any], table: str) -> str:
    """The `name` in a table of an experiment file; empty without one."""
    settings = config.get(table, {})
    if not isinstance(settings, Mapping):
        return ""
    return str(settings.get("name", ""))


def _data_facts(config: Mapping[str, Any], federation: Federation) -> Iterator[str]:
    """The data's name, the samples, the task, the clients, and the samples on which models are tested."""
    data = federation.clients.data
    problem = federation.clients.problem
    sizes = federation.clients.sizes
    if name := _name_in(config, "data"):
        yield name
    yield f"{int(sizes.sum()):,} samples{_features(data)}"
    if not isinstance(problem.task, Classification | OnlyLoss):
        yield f"task {type(problem.task).__name__}"
    if problem.classes and not isinstance(problem.task, OnlyLoss):
        yield _number(problem.classes, "class", "classes")
    clients = f"{len(sizes):,}" if data is None else FederatedData.facts(data)["clients"]
    yield f"clients: {clients}"
    if problem.test is not None:
        yield f"tested on {len(problem.test):,}"


def _features(data: FederatedData | None) -> str:
    """How many features each sample of a table has; empty for other data, and if nobody knows that it is a table."""
    if data is None:
        return ""
    x = data.train.x
    words = not data.feature_names and getattr(x, "dtype", None) == torch.int64  # they may be the words of a text
    if words or not isinstance(x.shape, tuple) or len(x.shape) != 2:
        return ""
    return f" of {_number(x.shape[1], 'feature', 'features')}"


def _number(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _described(part: Any) -> str:
    """A part with the settings that differ from its defaults, and those of `ALWAYS`: `FedProx(mu=0.01)`."""
    if not hasattr(part, "__dataclass_fields__"):
        return fact(part)
    settings = []
    for field in fields(part):
        if not field.init:
            continue
        value = getattr(part, field.name)
        if field.name in ALWAYS or text(value) != text(default_of(field)):
            settings.append(f"{field.name}={_described(value)}")
    if not settings:
        return type(part).__name__
    return f"{type(part).__name__}({', '.join(settings)})"


def _device(device: torch.device) -> str:
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"
