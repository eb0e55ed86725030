"""The checks for one's own find what is wrong, and take what needs its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor, nn

from fedsash.aggregation import WeightedMean
from fedsash.basics.arrays import Vectors
from fedsash.basics.layout import Layout
from fedsash.local import LocalTraining
from fedsash.methods import FedAvg
from fedsash.servers import ServerSGD
from fedsash.testing import check_aggregation, check_method, check_server
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
