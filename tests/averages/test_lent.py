"""Averages that are lent to a module: what keeps something of its values is made anew, and all is given back."""

from __future__ import annotations

import copy
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import EMA, Tracker, Window
from support.loops import make_model, steps


def trained(model: nn.Module, **averages: Any) -> list[Tracker]:
    """A tracker for each average, after some steps of one training."""
    trackers = [Tracker(average, model) for average in averages.values()]
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
        for tracker in trackers:
            tracker.update()
    return trackers


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))


def test_the_model_and_its_average_are_themselves_in_one_autocast_block() -> None:
    """PyTorch keeps casts of parameters there, and finds them by the tensor."""
    model = plain()
    (tracker,) = trained(model, ema=EMA(0.5))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        average = tracker.averaged_module()(X)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        own = copy.deepcopy(model)(X)
    other = copy.deepcopy(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model(X), own)
        with tracker.applied():
            assert torch.equal(model(X), average)
        assert torch.equal(model(X), own)
        assert torch.equal(other(X), own)
        tracker.copy_to(other)
        assert torch.equal(other(X), average)


class Folding(nn.Module):
    """An adapter that is folded into the frozen weight in eval mode, and taken out in train mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.float64), requires_grad=False)
        self.a = nn.Parameter(torch.randn(2, 4, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(4, 2, dtype=torch.float64))
        self.folded = False

    def train(self, mode: bool = True) -> Folding:
        if self.folded == mode:
            self.weight.data += (-1 if mode else 1) * (self.b @ self.a)
            self.folded = not mode
        super().train(mode)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return x.double() @ (self.weight if self.folded else self.weight + self.b @ self.a).T


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_weight_with_an_adapter_folded_into_it_is_that_of_the_values_that_are_there(wrapped: bool) -> None:
    layer = Folding()
    model = nn.Sequential(layer) if wrapped else layer
    (tracker,) = trained(model, ema=EMA(0.5))
    frozen = layer.weight.clone()
    values = {name.rpartition(".")[2]: tensor for name, tensor in tracker.value().items()}
    average = X.double() @ (frozen + values["b"] @ values["a"]).T
    own = X.double() @ (frozen + layer.b @ layer.a).T
    for before in (True, False):
        model.train(before)
        with tracker.applied():
            torch.testing.assert_close(model(X), average)
            model.eval()
            torch.testing.assert_close(model(X), average)
        assert not model.training and layer.folded
        torch.testing.assert_close(model(X), own)
    state = tracker.averaged_state_dict()
    torch.testing.assert_close(state["0.weight" if wrapped else "weight"], frozen)
    other = copy.deepcopy(model)
    tracker.copy_to(other)
    torch.testing.assert_close(other(X), average)
    model.train()
    torch.testing.assert_close(layer.weight, frozen)


def test_layers_keep_the_modes_that_they_have() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Dropout(), nn.Linear(4, 4)), nn.Dropout())
    (tracker,) = trained(model, ema=EMA(0.5))
    for mode in (True, False):
        model.train(mode)
        model[1].train(not mode)
        model[1][1].train(mode)
        modes = [layer.training for layer in model.modules()]
        with tracker.applied():
            assert [layer.training for layer in model.modules()] == modes
        assert [layer.training for layer in model.modules()] == modes


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_averages_that_overlap_are_given_back_in_any_order(order: tuple[int, ...]) -> None:
    """The module has the latest of those that are still lent, and in the end its own values, bitwise."""
    model = make_model()
    averages = [Window(3), EMA(0.5), EMA(0.9, part="0")]
    trackers = [Tracker(average, model) for average in averages]
    for _ in range(4):
        steps(model, 1, trackers[0])
        for tracker in trackers[1:]:
            tracker.update()
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    values = [tracker.value() for tracker in trackers]
    lent = [tracker.applied() for tracker in trackers]
    for each in lent:
        each.__enter__()
    left = set(range(3))
    for number in order:
        lent[number].__exit__(None, None, None)
        left.remove(number)
        expected = dict(own)
        for other in sorted(left):
            expected |= values[other]
        state = model.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
