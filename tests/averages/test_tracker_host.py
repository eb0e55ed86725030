"""Averages that are kept on the host, of every k-th model: what is read from where, and what an EMA's decay is of."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import BEMA, EMA, SWA, Average, Tracker, Window
from fedsash.settings.errors import RunError, SettingError
from support.elsewhere import DEVICE, DevicePresent, Elsewhere, move_elsewhere
from support.loops import equal, make_model

AVERAGES: dict[str, Average] = {
    "window": Window(3),
    "short": Window(2, kept_as="bfloat16"),
    "ema": EMA(0.9, start="initial"),
    "double": EMA(0.9, precision="double"),
    "swa": SWA(1),
    "bema": BEMA(),
}


def norms() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def walk(module: nn.Module, step: int) -> None:
    """Move all parameters, in a way that depends on the step only."""
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in module.parameters():
            move = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(parameter.to("cpu") + move.to(parameter.dtype))


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """Copies of the module's tensors on the host."""
    return {name: value.detach().to("cpu", copy=True) for name, value in module.state_dict().items()}


def both_walk(here: nn.Module, there: nn.Module) -> None:
    """Averages of `there` that are kept on the host are those of the same module `here` on the host, to the bit."""
    ours = Tracker(AVERAGES, there, trajectory_every=2, device="cpu")
    plain = Tracker(AVERAGES, here, trajectory_every=2)
    for step in range(7):
        walk(here, step)
        walk(there, step)
        plain.update()
        ours.update()
    for name in AVERAGES:
        own = tensors(there)
        with ours.applied(name), plain.applied(name):
            assert equal(tensors(there), tensors(here))
        assert equal(tensors(there), own)
        value = ours.value(name)
        assert equal(value, plain.value(name))
        copied = ours.averaged_state_dict(name)
        assert equal(copied, plain.averaged_state_dict(name))
        assert {tensor.device.type for tensor in [*value.values(), *copied.values()]} == {"cpu"}
    assert equal(ours.window(4), plain.window(4))
    state = ours.state_dict()
    assert equal(state, plain.state_dict())
    assert not any(isinstance(tensor, Elsewhere) for tensor in state.values())
    assert {tensor.device.type for tensor in state.values()} == {"cpu"}


def test_averages_kept_on_the_host_are_those_of_the_same_module_on_the_host() -> None:
    there = norms()
    move_elsewhere(there)
    assert there[0].weight.device == DEVICE
    both_walk(norms(), there)


def test_averages_of_a_module_on_the_device_may_be_kept_on_the_host(device: str) -> None:
    both_walk(norms(), norms().to(device))


def test_inside_applied_an_average_kept_on_the_host_can_be_read_and_another_one_applied() -> None:
    module = norms()
    move_elsewhere(module)
    tracker = Tracker({"ema": EMA(0.5), "part": Window(2, part="0"), "later": SWA(9)}, module, device="cpu")
    walk(module, 0)
    tracker.update()
    walk(module, 1)
    tracker.update()
    own = tensors(module)
    part = tracker.value("part")
    with DevicePresent(), tracker.applied("ema"):
        assert equal(tracker.value("part"), part)
        # It has no model yet, so it is the module itself, and not the average that is in the module.
        later = tracker.value("later")
        assert all(torch.equal(later[name], own[name]) for name, _ in module.named_parameters())
        with tracker.applied("part"):
            assert torch.equal(tensors(module)["0.weight"], part["0.weight"])
            assert torch.equal(tensors(module)["2.weight"], own["2.weight"])
    assert equal(tensors(module), own)


@pytest.mark.parametrize("name", AVERAGES)
def test_what_is_kept_on_the_modules_own_device_shares_no_memory_with_it(name: str) -> None:
    module = norms()
    tracker = Tracker(AVERAGES[name], module, trajectory_every=1, device="cpu")
    walk(module, 0)
    tracker.update()
    kept = {key: tensor.clone() for key, tensor in tracker.state_dict().items()}
    value = tracker.value()
    copied = copy.deepcopy(value)
    state = tracker.averaged_state_dict()
    its_copy = copy.deepcopy(state)
    walk(module, 1)
    assert equal(tracker.state_dict(), kept)
    assert equal(value, copied) and equal(state, its_copy)


@pytest.mark.parametrize("every", [2, 3])
def test_every_kth_call_is_a_round_and_the_others_are_none(every: int) -> None:
    module = make_model()
    ours = Tracker(AVERAGES, module, trajectory_every=2, every=every)
    plain = Tracker(AVERAGES, module, trajectory_every=2)
    for step in range(1, 14):
        walk(module, step)
        ours.update()
        if step % every == 0:
            plain.update()
        assert ours.round == step // every
        for name in AVERAGES:
            assert equal(ours.value(name), plain.value(name))
    assert ours.count("window") == 3
    assert equal(ours.window(2), plain.window(2))


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_a_tracker_that_is_resumed_between_two_rounds_goes_on_counting_its_calls(stop: int) -> None:
    module = make_model()
    whole = Tracker(AVERAGES, module, every=3)
    state: dict[str, Tensor] = {}
    for step in range(1, 11):
        walk(module, step)
        whole.update()
        if step == stop:
            state = copy.deepcopy(whole.state_dict())
    module = make_model()
    for step in range(1, stop + 1):
        walk(module, step)
    resumed = Tracker(AVERAGES, module, every=3)
    resumed.load_state_dict(state)
    for step in range(stop + 1, 11):
        walk(module, step)
        resumed.update()
    assert equal(resumed.state_dict(), whole.state_dict())


def test_a_decay_d_to_the_k_of_every_kth_model_is_the_decay_d_of_steps_that_stand_still_in_between() -> None:
    module = make_model().double()
    each_step = Tracker(EMA(0.9, start="initial"), module)
    every_third = Tracker(EMA(0.9**3, start="initial"), module, every=3)
    for model in range(8):
        walk(module, model)
        for _ in range(3):
            each_step.update()
            every_third.update()
    assert every_third.count() == 8
    for name, value in every_third.value().items():
        torch.testing.assert_close(value, each_step.value()[name], rtol=1e-12, atol=1e-14)


def test_a_state_of_another_every_is_refused_and_one_of_another_device_is_not() -> None:
    module = make_model()
    tracker = Tracker(EMA(0.9), module, every=2)
    with pytest.raises(RunError, match=r"this tracker: Tracker\.every is 2 there and nothing here$"):
        Tracker(EMA(0.9), module).load_state_dict(tracker.state_dict())
    walk(module, 0)
    tracker.update()
    tracker.update()
    moved = Tracker(EMA(0.9), module, every=2, device="cpu")
    moved.load_state_dict(tracker.state_dict())
    assert equal(moved.value(), tracker.value())


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"every": 0}, r"^Tracker\.every = 0: must be at least 1$"),
        ({"every": True}, r"^Tracker\.every = True: must be a whole number$"),
        ({"device": "meta"}, r"^Tracker\.device = 'meta': holds no values: name another one, such as 'cpu'$"),
        ({"device": "gpu"}, r"^Tracker\.device = 'gpu': can't be used: [^\n]+$"),
        ({"device": 1.5}, r"^Tracker\.device = '1\.5': can't be used: [^\n]+$"),
    ],
)
def test_wrong_settings_are_refused_in_a_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError, match=line):
        Tracker(EMA(0.9), make_model(), **settings)
