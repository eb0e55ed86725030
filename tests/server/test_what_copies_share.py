"""Copies of a model train: what they share with it, by a function that holds it, is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.server.federation import Federation
from fedsash.settings.errors import ModelError
from fedsash.tasks import Classification

RNG = np.random.default_rng(0)
X = RNG.random((40, 6))
Y = (X[:, 0] * 3).astype(np.int64)


def world(model: nn.Module, task: Any = None, **settings: Any) -> Federation:
    data = FederatedData.from_arrays(X, Y, clients=[range(20), range(20, 40)], task=task)
    return Federation(model.double(), data, engine=LocalEngine("sequential", workers=1), **settings)


class Block(nn.Module):
    """Two layers, of which the first one belongs to `block`."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.classifier = nn.Linear(6, 4), nn.Linear(4, 3)
        self.block: Callable[[Tensor], Tensor] = self._block()

    def _block(self) -> Callable[[Tensor], Tensor]:
        return partial(self.first)

    def first(self, x: Tensor) -> Tensor:
        return self.hidden(x).tanh()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.classifier(self.block(x))
        return output


class WithLambda(Block):
    def _block(self) -> Callable[[Tensor], Tensor]:
        return lambda x: self.hidden(x).tanh()


class WithCompiledMethod(Block):
    def _block(self) -> Callable[[Tensor], Tensor]:
        compiled: Callable[[Tensor], Tensor] = torch.compile(self.first, backend="eager")
        return compiled


class WithHook(nn.Module):
    """An adapter that a forward hook adds to a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier, self.hidden = nn.Linear(6, 3), nn.Linear(6, 3)
        self.classifier.register_forward_hook(lambda layer, inputs, output: output + self.hidden(inputs[0]))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.classifier(x)
        return output


@pytest.mark.parametrize("kind", [WithLambda, WithCompiledMethod, WithHook])
def test_a_layer_that_a_function_holds_is_refused_by_name(kind: Callable[[], nn.Module]) -> None:
    with pytest.raises(ModelError, match=r"^hidden\.bias, hidden\.weight would not train: a function that copies"):
        world(kind())


def test_a_layer_behind_a_bound_method_trains() -> None:
    model = Block()
    federation = world(model)
    state, _ = federation.round(federation.start())
    trained = federation.module_of(state.w)
    assert not torch.equal(trained.get_submodule("hidden").weight, model.hidden.weight)


MODEL = nn.Linear(6, 3).double()
CENTERS = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)


def ridge(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none") + sum(p.square().sum() for p in MODEL.parameters())


def to_centers(output: Tensor, y: Tensor) -> Tensor:
    return (output - CENTERS[y]).square().sum(1)


@dataclass(frozen=True)
class Ridge(Classification):
    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return ridge(output, y)


@pytest.mark.parametrize("settings", [{"loss": ridge}, {"task": Ridge()}], ids=["loss", "task"])
def test_a_penalty_on_a_global_model_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"^bias, weight would not train: .*return there what a loss needs$"):
        world(MODEL, **settings)


@pytest.mark.parametrize(("loss", "shapes"), [(to_centers, r"\[3, 3\]"), (ridge, r"(\[3, 6\], \[3\]|\[3\], \[3, 6\])")])
def test_trainable_tensors_beside_the_model_are_refused(loss: Any, shapes: str) -> None:
    with pytest.raises(ModelError, match=rf"tensors of shape {shapes} that are none of the model's parameters"):
        world(nn.Linear(6, 3), loss=loss)


TEACHER = nn.Linear(6, 3).double().requires_grad_(False)


class Distilled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + TEACHER(x)


class OfSlopes(nn.Linear):
    """Its outputs are the slopes of a sum of its squares: each pass makes a tensor with a gradient of its own."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = super().forward(x).square().sum()
            (slopes,) = torch.autograd.grad(energy, x, create_graph=True)
        return slopes[:, :3]


@pytest.mark.parametrize("kind", [Distilled, OfSlopes])
def test_a_frozen_teacher_and_gradients_at_inputs_are_taken(kind: Callable[..., nn.Module]) -> None:
    world(kind(6, 3))
