"""What FedFA refuses."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from fedsash.methods import FedAvg, FedFA
from fedsash.settings.errors import SettingError
from fedsash.tasks import Classification
from fedsash.vector.arrays import Vectors
from support.by_default import rotated
from support.tasks import PROBLEMS
from support.worlds import ENGINES, after, federation, mlp


def test_fedfa_refuses_labels_that_are_sequences_in_one_line() -> None:
    work, one = torch.zeros(4, 2), torch.zeros(4)
    with pytest.raises(ValueError, match=r"FedFA: labels of a batch.*must be one for each sample"):
        FedFA().objective(work, torch.zeros(4, 3, dtype=torch.int64), one, {})


@pytest.mark.parametrize("name", [name for name, each in PROBLEMS.items() if not isinstance(each.task, Classification)])
def test_fedfa_refuses_tasks_without_one_class_for_each_sample_before_it_trains(name: str) -> None:
    with pytest.raises(SettingError, match="FedFA needs one class"), PROBLEMS[name].federation(method=FedFA()) as world:
        world.prepare()


@dataclass(frozen=True)
class Short(FedAvg):
    """A term from the features alone, for any task."""

    def objective(self, features: Tensor, y: Tensor, weights: Tensor, server_state: Vectors) -> Tensor:
        return features.square().mean()


@pytest.mark.parametrize("name", ["binary", "multi_label", "regression"])
def test_another_objective_takes_any_task(name: str) -> None:
    with PROBLEMS[name].federation(method=Short()) as world:
        state, _ = world.round(world.start())
        assert torch.isfinite(state.w).all()


def test_fedfa_refuses_a_frozen_last_layer_and_takes_no_other_one_for_it() -> None:
    model = mlp()
    *_, last = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    last.requires_grad_(False)
    with pytest.raises(SettingError, match="which is frozen here"), federation(model=model, method=FedFA()) as world:
        world.prepare()


class Shuffled(nn.Module):
    """Defines a hidden layer of `width` units after its head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(width, 3), nn.Linear(4, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "width, why", [(16, r"model = 'body': .* uses 'head' after it: define that"), (2, "2 outputs for 3 classes")]
)
def test_fedfa_takes_no_hidden_layer_for_the_classifier(width: int, why: str) -> None:
    with pytest.raises(SettingError, match=why), federation(model=Shuffled(width), method=FedFA()) as world:
        world.prepare()


class Named(nn.Sequential):
    """Gives its layers their input by its name."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(input=x)
        return x


@pytest.mark.parametrize("engine", rotated(["vectorised", "sequential", "workers"], turns=1))
def test_fedfa_finds_features_that_are_given_by_name(engine: str) -> None:
    given, named = (kind(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3)) for kind in (nn.Sequential, Named))
    named.load_state_dict(given.state_dict())
    ends = [after(federation(model=model, method=FedFA(), engine=ENGINES[engine]), 2).w for model in (given, named)]
    assert torch.equal(*ends)


class OfParts(nn.Module):
    """One output for each part of a sample, of which the mean counts."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.unflatten(1, (2, 2))).mean(1)  # type: ignore[no-any-return]


def test_fedfa_refuses_a_classifier_of_the_parts_of_a_sample() -> None:
    why = r"model = 'head': .* needs one output \[B, classes\] of it; here it is \[2, 2, 3\] for two samples"
    with pytest.raises(SettingError, match=why), federation(model=OfParts(), method=FedFA()) as world:
        world.prepare()


def test_fedfa_takes_a_classifier_with_outputs_for_more_classes() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 5))
    with federation(model=model, method=FedFA()) as world:
        assert world.round(world.start())[1].moved
