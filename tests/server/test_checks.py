"""The checks for one's own find what is wrong, and take what needs its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import Pieces
from fedsash.client import LocalTraining
from fedsash.data.partitions import IID
from fedsash.methods import FedAvg, LocalRun, RoundMean, Step, WeightedMean
from fedsash.methods.sampling import Poisson, Sampling, Uniform
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.testing import (
    check_aggregation,
    check_average,
    check_method,
    check_partition,
    check_sampling,
    check_server,
    small_data,
)
from fedsash.vector.arrays import Ints, Vectors
from fedsash.vector.layout import Layout
from support.own import PlainMean
from support.worlds import mlp


@dataclass(frozen=True)
class Views(ServerSGD):
    """Keeps a part of the update, and not a copy of it."""

    def init(self, w: Tensor) -> Vectors:
        return {"m": w[1:].clone()}

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        return sent + delta, {"m": delta[1:]}


def test_a_server_that_keeps_a_part_of_its_arguments_is_found() -> None:
    with pytest.raises(AssertionError, match="a step must return new tensors"):
        check_server(Views())


@dataclass(frozen=True)
class OfTwoLayers(FedAvg):
    """Takes models with a layer called `second` only."""

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        assert any(name.startswith("second") for name in layout.names)
        return {}


def test_a_method_that_needs_its_model_passes_with_it() -> None:
    model = nn.Sequential()
    model.add_module("first", mlp())
    model.add_module("second", nn.Linear(3, 3).double())
    check_method(OfTwoLayers(), model=model)


@dataclass(frozen=True)
class Uniformly(WeightedMean):
    """Goes with uniform weights only."""

    def fits(self, method: Any, *rest: Any) -> None:
        assert method.weighting == "uniform"


def test_an_aggregation_that_needs_its_method_passes_with_it() -> None:
    check_aggregation(Uniformly(), method=FedAvg(weighting="uniform"), local=LocalTraining(lr=0.1, batch=5))


def fails(check: Callable[[Any], None], value: Any, sentence: str) -> None:
    """A check of the value ends in one sentence that names it."""
    with pytest.raises(AssertionError, match=sentence) as error:
        check(value)
    assert "\n" not in str(error.value) and type(value).__name__ in str(error.value)


# What an average counts and remembers.


@dataclass(frozen=True)
class Uncounted(PlainMean):
    """Adds `steps` to `seen` for each model."""

    steps: int = 0

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["sum"] += w.whole()
        state["seen"] += self.steps

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return (state["sum"] * max(self.steps, 1) / state["seen"].clamp(min=1)).to(w.dtype)


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (0, "`seen` must count the models: after round 1 it is 0"),
        (2, "`seen` must count each observed model once: after round 1 it is 2 and was 0"),
    ],
)
def test_an_average_that_does_not_count_its_models_is_found(steps: int, line: str) -> None:
    fails(check_average, Uncounted(steps=steps), line)


def test_an_average_that_begins_late_and_counts_its_models_passes() -> None:
    check_average(Uncounted(start=5, steps=1), data=small_data((3, 8, 6)), sampling=Uniform(2))


@dataclass(frozen=True)
class Numbers(PlainMean):
    """Counts in a number, which no state can save."""

    def init(self, w: Tensor) -> Any:
        return {"sum": torch.zeros_like(w), "seen": 0}


@dataclass(frozen=True)
class OneNumber(PlainMean):
    """The mean over models and over parameters."""

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return state["sum"].mean() / state["seen"]


@pytest.mark.parametrize(
    ("average", "line"),
    [
        (Numbers(), "each value of its state must be a tensor, not seen = 0"),
        (OneNumber(), "its value must have the model's shape and type"),
    ],
)
def test_an_average_of_other_values_is_found(average: Any, line: str) -> None:
    fails(check_average, average, line)


# Whatever is raised by one's own code becomes one sentence.


@dataclass(frozen=True)
class Lambda(FedAvg):
    """Holds what can't be pickled."""

    rule: Any = field(default_factory=lambda: lambda x: x)


@dataclass(frozen=True)
class Alone(FedAvg):
    """Forgets to return the server state."""

    def server_update(self, received: RoundMean) -> Any:
        return received.update


@dataclass(frozen=True)
class Nowhere(FedAvg):
    """Forgets to return the direction."""

    def direction(self, step: Step) -> Any:
        step.grad(step.w)


@pytest.mark.parametrize(
    ("method", "line"),
    [
        (Lambda(), "it must be picklable"),
        (Alone(), r"it must run without an error \(\w+: "),
        (Nowhere(), r"it must run without an error \(\w+: "),
    ],
)
def test_an_error_in_a_method_becomes_one_sentence(method: Any, line: str) -> None:
    fails(check_method, method, line)


@dataclass(frozen=True)
class Doubles(FedAvg):
    """Doubles the model that clients have received, and the update at the server, in place."""

    hook: str = ""

    def upload(self, local: LocalRun) -> tuple[Vectors, Vectors]:
        delta = local.delta
        if self.hook == "upload":
            local.sent.mul_(2)
        return {"delta": delta}, {}

    def server_update(self, received: RoundMean) -> tuple[torch.Tensor, Vectors]:
        if self.hook == "server_update":
            received.mean["delta"].mul_(2)
        return received.update, received.server_state

    def direction(self, step: Step) -> torch.Tensor:
        direction = step.grad(step.w)
        if self.hook == "direction":
            step.w.mul_(2)
        return direction

    def send(self, w: torch.Tensor, server_state: Vectors, round: int) -> tuple[torch.Tensor, Vectors]:
        return (w.mul_(2) if self.hook == "send" else w), server_state


@pytest.mark.parametrize("hook", ["upload", "server_update", "direction", "send"])
def test_a_method_that_changes_its_arguments_is_found(hook: str) -> None:
    fails(check_method, Doubles(hook=hook), f"{hook} must not change its arguments")


@dataclass(frozen=True)
class Forgets(WeightedMean):
    """Remembers something before the first round only."""

    def init(self, sampling: Sampling, clients: int) -> Vectors:
        return {"m": torch.zeros(())}

    def release(self, mean: Vectors, **others: Any) -> tuple[Vectors, Vectors]:
        return mean, {}


def test_an_aggregation_that_drops_its_memory_is_found() -> None:
    fails(check_aggregation, Forgets(), "must also return the new memory 'm'")


@dataclass(frozen=True)
class Climbs(ServerSGD):
    """Takes the update for a gradient."""

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        return sent - delta, {}


def test_a_server_that_subtracts_the_update_is_found() -> None:
    fails(check_server, Climbs(), "the first step must not go against the update")


# Samplings and partitions.


def test_a_sampling_whose_rounds_may_be_empty_passes() -> None:
    check_sampling(Poisson(0.1))


@dataclass(frozen=True)
class Lists(IID):
    """Lists of indices, and `more` clients than it says."""

    more: int = 0

    def __call__(self, labels: Ints, seed: int) -> Any:
        return [part.tolist() for part in np.array_split(np.arange(len(labels)), self.clients + self.more)]


def test_a_partition_may_give_lists() -> None:
    check_partition(Lists(20))


def test_a_partition_of_more_clients_than_its_field_says_is_found() -> None:
    fails(check_partition, Lists(20, more=3), "it must give as many clients as its field says, not 23")
