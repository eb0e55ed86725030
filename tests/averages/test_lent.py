"""Averages that are lent to a module: what keeps something of its values is made anew, and all is given back."""

from __future__ import annotations

import copy
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import EMA, Tracker, Window
from fedsash.settings.errors import RunError
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

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        weight = torch.randn(4, 4, dtype=torch.float64)
        self.weight: Tensor
        if buffer:
            self.register_buffer("weight", weight)
        else:
            self.register_parameter("weight", nn.Parameter(weight, requires_grad=False))
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
@pytest.mark.parametrize("buffer", [False, True])
def test_a_weight_with_an_adapter_folded_into_it_is_that_of_the_values_that_are_there(
    wrapped: bool, buffer: bool
) -> None:
    layer = Folding(buffer)
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
    """The module has the latest of those that are still lent, the rest its own, and in the end all its own, bitwise."""
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
        expected = own | (values[max(left)] if left else {})
        state = model.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


class Cached(nn.Linear):
    """Keeps something that it has computed from its weight, until the weight has another version."""

    version, kept = -1, torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.version != self.weight._version:
            self.version = self.weight._version
            self.kept = self.weight.detach() / self.weight.detach().norm()
        return x @ self.kept.T


def test_a_layer_that_looks_at_a_weights_version_sees_that_it_has_other_values() -> None:
    layer, other = Cached(4, 3), Cached(4, 3)
    tracker = Tracker(EMA(0.9), layer)
    for _ in range(4):
        with torch.no_grad():
            layer.weight.add_(torch.randn(3, 4))
        tracker.update()
        weight, average = layer.weight.detach().clone(), tracker.value()["weight"]
        with tracker.applied():  # before the model itself
            torch.testing.assert_close(layer(X), X @ (average / average.norm()).T)
        torch.testing.assert_close(layer(X), X @ (weight / weight.norm()).T)
        with tracker.applied():
            torch.testing.assert_close(layer(X), X @ (average / average.norm()).T)
        other(X)
        tracker.copy_to(other)
        torch.testing.assert_close(other(X), X @ (average / average.norm()).T)


def test_a_graph_from_before_an_exchange_of_values_does_not_go_backwards() -> None:
    """Its gradients would be of the one model's activations and the other one's weights."""
    model = plain()
    (tracker,) = trained(model, ema=EMA(0.5))
    loss = model(X).square().sum()
    with tracker.applied(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    model(X).square().sum().backward()


def test_a_module_of_inference_mode_has_no_versions_and_is_lent_too() -> None:
    with torch.inference_mode():
        model = plain()
    tracker = Tracker(EMA(0.5, start="zero"), model)
    tracker.update()
    with torch.inference_mode():
        own = model(X)
        with tracker.applied():
            assert torch.equal(model(X), own)


class Odd(nn.Module):
    """Does to its buffers what a forward pass may do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("replaced", torch.tensor([]))
        self.register_buffer("resized", torch.tensor([1.0]))
        self.register_buffer("gone", torch.tensor([2.0]))
        self.register_buffer("none", None)
        self.register_buffer("spread", torch.zeros(3))
        self.register_buffer("counted", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.replaced = x.detach().amax(0)
        with torch.no_grad():
            self.resized.resize_(3).fill_(7.0)
        if hasattr(self, "gone"):
            del self.gone
            self.register_buffer("fresh", torch.ones(2), persistent=False)
        self.none = torch.ones(1)
        self.spread = torch.tensor(5.0).expand(3)
        self.counted = self.counted + 1
        return x * self.weight


def test_buffers_that_change_their_shape_come_or_go_are_as_before() -> None:
    inner = Odd()
    model = nn.Sequential(inner)
    (tracker,) = trained(nn.Sequential(nn.Linear(4, 4)), ema=EMA(0.5))
    tracker, whole = Tracker(EMA(0.9), model), Tracker(EMA(0.5), inner)
    for each in (tracker, whole):
        each.update()
    resized = inner.resized
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with tracker.applied():
        model(X)
        with whole.applied():
            assert inner.counted == 0
            model(X)
    first, second = tracker.applied(), whole.applied()
    first.__enter__()
    model(X)
    second.__enter__()
    model(X)
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    after = dict(model.named_buffers())
    assert inner.none is None and inner.resized is resized and before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert "fresh" not in inner._non_persistent_buffers_set


def test_an_average_that_is_asked_for_inside_applied_of_another_is_that_of_outside() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    averages = {"all": EMA(0.9), "head": EMA(0.5, part="2"), "latest": Window(3, buffers="latest")}
    tracker, late = Tracker(averages, model), Tracker(Window(2), model[2])
    (other,) = trained(model, head=EMA(0.5, part="2"))
    for _ in range(3):
        drifted(model)
        tracker.update()

    def reads() -> list[dict[str, Tensor]]:
        initial = Tracker(EMA(0.5, start="initial"), model)
        modules = [each.averaged_module().state_dict() for each in (other, initial)]
        states = [tracker.averaged_state_dict(name) for name in averages]
        return [*states, *modules, late.value(), tracker.value("head"), late.averaged_state_dict()]

    outside = reads()
    for name in averages:
        with tracker.applied(name):
            model(X)  # in train mode: it moves the statistics
            inside = reads()
            with pytest.raises(RunError, match="would lose it"):
                late.copy_to(model[2])
        assert all(torch.equal(a[n], b[n]) for a, b in zip(inside, outside, strict=True) for n in b)


def drifted(model: nn.Module) -> None:
    with torch.no_grad():
        model(X)
        for p in model.parameters():
            p.add_(torch.randn_like(p))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("whole_first", [True, False])
def test_averages_of_a_module_and_of_a_part_of_it_may_overlap(order: tuple[int, int], whole_first: bool) -> None:
    model = plain()
    trackers = [Tracker(EMA(0.5), model), Tracker(EMA(0.9), model[2])]
    for _ in range(3):
        drifted(model)
        for tracker in trackers:
            tracker.update()
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    lent = [tracker.applied() for tracker in (trackers if whole_first else trackers[::-1])]
    for each in lent:
        each.__enter__()
    for number in order:
        lent[number].__exit__(None, None, None)
    assert all(torch.equal(own[name], tensor) for name, tensor in model.state_dict().items())


def test_a_parameter_that_somebody_else_moves_meanwhile_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """As an optimiser's `eval()` does, which then takes the model for the other one."""
    model = plain()
    (tracker,) = trained(model, ema=EMA(0.5))
    own = model[2].bias.detach().clone()
    with tracker.applied():
        model(X)
    assert not caplog.messages
    with tracker.applied(), torch.no_grad():
        model[2].bias.add_(1.0)
    assert torch.equal(model[2].bias, own)
    assert [m[:50] for m in caplog.messages] == ["2.bias was changed while the average was in the mo"]


def test_a_module_that_is_left_in_half_precision_has_its_own_type_and_values_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Put back into float16, its own values would be rounded for good."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    (tracker,) = trained(model, ema=EMA(0.5))
    before = copy.deepcopy(model.state_dict())
    average = tracker.value()
    parameters = list(model.parameters())
    with tracker.applied():
        model.half()
    after = model.state_dict()
    assert all(
        torch.equal(after[name], tensor) and after[name].dtype == tensor.dtype for name, tensor in before.items()
    )
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(torch.equal(value, average[name]) for name, value in tracker.value().items())
    assert "had another type while the average was in it; torch.float32 again" in caplog.text
    model(X).square().mean().backward()
