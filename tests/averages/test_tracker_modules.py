"""A tracker of modules that are wrapped, moved, or of several types."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import EMA, SWA, Average, Tracker, Window
from support.loops import equal, make_model, mean_of, steps


def test_parameters_of_several_types_are_each_averaged_in_their_own() -> None:
    model = make_model()
    model[0].to(torch.bfloat16)
    model[2].to(torch.float64)
    tracker, models = Tracker({"window": Window(3), "ema": EMA(0.5)}, model), []
    for _ in range(5):
        for p in model.parameters():
            p.data += torch.randn_like(p)
        tracker.update()
        models.append(copy.deepcopy(model.state_dict()))
    averaged = tracker.averaged_state_dict("window")
    assert {n: t.dtype for n, t in averaged.items()} == {n: t.dtype for n, t in model.state_dict().items()}
    for name in averaged:
        torch.testing.assert_close(averaged[name], mean_of(models[-3:], name))
    kept = {(t.dtype, t.numel()) for n, t in tracker.state_dict().items() if n.endswith("ema/ema")}
    assert kept == {(torch.float32, 25), (torch.float64, 12)}


def test_numbers_of_batches_are_counted_in_the_widest_type() -> None:
    """float16 has no 65,520, and bfloat16 no 1,003."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4).half(), torch.nn.BatchNorm1d(4))
    tracker = Tracker(Window(1), model)
    model[1].num_batches_tracked.fill_(70_001)
    tracker.update()
    assert tracker.averaged_state_dict()["1.num_batches_tracked"] == 70_001


def test_a_model_of_16_bits_counts_its_batches_all_the_same() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).half()
    tracker = Tracker({"e": EMA(0.5), "w": Window(1)}, model)
    model[1].num_batches_tracked.fill_(70_001)
    tracker.update()
    assert tracker.count("e") == 1
    assert tracker.averaged_state_dict("w")["1.num_batches_tracked"] == 70_001


class Masked(torch.nn.Linear):
    """A layer with a mask, rotations, and something that is no tensor in its state dict."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("mask", torch.ones(2, 2).tril().bool())
        self.register_buffer("turns", torch.ones(2, dtype=torch.complex64) * 1j)

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


def test_masks_rotations_and_what_is_no_tensor_are_taken_along() -> None:
    model, other = Masked(), Masked()
    tracker = Tracker(Window(2), model)
    tracker.update()
    model.mask.logical_not_()
    tracker.copy_to(other)
    assert torch.equal(other.mask, model.mask) and torch.equal(other.turns, model.turns)
    assert torch.equal(other.weight, model.weight)
    assert tracker.averaged_state_dict()["_extra_state"] == {"calls": 3}


class Permuted(nn.BatchNorm1d):
    """A BatchNorm with a buffer of its own, and with a layer in it that has one."""

    def __init__(self) -> None:
        super().__init__(2)
        self.register_buffer("order", torch.tensor([0, 1]))
        self.inner = Masked()


def test_only_the_statistics_of_a_norm_layer_are_averaged_and_not_its_other_buffers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Permuted())
    tracker = Tracker(Window(2), model)
    for order in ([0, 1], [1, 0]):
        model[1].order.copy_(torch.tensor(order))
        model[1].running_mean.add_(1)
        tracker.update()
    averaged = tracker.averaged_state_dict()
    assert averaged["1.order"].tolist() == [1, 0]
    assert torch.equal(averaged["1.inner.mask"], model[1].inner.mask)
    assert averaged["1.running_mean"].tolist() == [1.5, 1.5]


def test_an_average_can_be_used_when_nothing_trains_any_more() -> None:
    model = make_model()
    tracker = Tracker(Window(2), model)
    tracker.update()
    model.requires_grad_(False).eval()
    with tracker.applied():
        pass
    assert tracker.averaged_state_dict().keys() == model.state_dict().keys()


def test_statistics_that_were_frozen_when_a_tracker_was_saved_join_after_a_load() -> None:
    def world() -> tuple[torch.nn.Module, Tracker]:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        return model, Tracker(SWA(1), model)

    def go_on(model: Any, tracker: Tracker) -> Any:
        model[1].eval()
        tracker.update()
        model[1].train()
        for mean in (1.0, 3.0):
            model[1].running_mean.fill_(mean)
            tracker.update()
        return tracker.averaged_state_dict()["1.running_mean"]

    model, tracker = world()
    model[1].eval()
    tracker = Tracker(SWA(1), model)
    tracker.update()
    saved = copy.deepcopy(tracker.state_dict())
    again, loaded = world()
    loaded.load_state_dict(saved)
    assert torch.equal(go_on(again, loaded), go_on(model, tracker))


@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_a_wrapped_module_is_averaged_as_the_plain_one(wrap: Any) -> None:
    plain, inside = make_model(), make_model()
    wrapped = wrap(inside)
    one, other = Tracker(Window(3), plain), Tracker(Window(3), wrapped)
    for tracker, model, called in ((one, plain, plain), (other, inside, wrapped)):
        steps(model, 5, tracker, forward=called)
    assert equal(one.averaged_state_dict(), other.averaged_state_dict())
    assert equal(one.state_dict(), other.state_dict())
    target = wrap(make_model())
    one.copy_to(target)
    assert equal(make_like(one), make_like(other)) and equal(
        Tracker(Window(1), target).averaged_state_dict(), make_like(one)
    )


def make_like(tracker: Tracker) -> dict[str, Tensor]:
    return tracker.averaged_module().state_dict()


def test_a_compiled_module_gives_the_averages_outputs_while_it_is_applied() -> None:
    model = make_model()
    compiled: Any = torch.compile(model, backend="eager")
    tracker = Tracker(Window(3), compiled)
    x = torch.randn(6, 4)
    steps(model, 5, tracker, forward=compiled)
    expected, own = tracker.averaged_module()(x), model(x)
    with tracker.applied():
        assert torch.equal(compiled(x), expected)
    assert torch.equal(compiled(x), own)


@pytest.mark.usefixtures("one_process")
def test_a_module_of_ddp_is_averaged_as_the_plain_one() -> None:
    plain, inside = make_model(), make_model()
    wrapped = nn.parallel.DistributedDataParallel(inside)
    one, other = Tracker(EMA(0.7), plain), Tracker(EMA(0.7), wrapped)
    steps(plain, 4, one)
    steps(inside, 4, other, forward=wrapped)
    assert equal(one.averaged_state_dict(), other.averaged_state_dict())


def test_a_module_that_is_moved_inside_applied_gets_its_own_values_back() -> None:
    model = make_model()
    tracker = Tracker(EMA(0.5), model)
    own = steps(model, 3, tracker)[-1]
    with tracker.applied():
        model.double()
    assert equal({name: t.float() for name, t in model.state_dict().items()}, own)


def test_an_average_of_a_module_that_changed_its_type_is_resumed_in_the_type_that_it_has() -> None:
    model = make_model()
    tracker = Tracker(Window(3), model)
    steps(model, 4, tracker)
    model.bfloat16()
    tracker.update()
    resumed = Tracker(Window(3), model)
    resumed.load_state_dict(tracker.state_dict())
    assert equal(resumed.state_dict(), tracker.state_dict()) and equal(resumed.value(), tracker.value())


@pytest.mark.parametrize("average", [Window(3), EMA(0.5)], ids=str)
def test_a_layer_of_another_size_is_refused(average: Average) -> None:
    model = make_model()
    tracker = Tracker(average, model)
    steps(model, 3, tracker)
    model[2] = nn.Linear(5, 7)
    with pytest.raises(ValueError, match=r"^the module has no 2.weight of shape \[2, 5\] any more: make a new tracker"):
        tracker.update()


def test_an_average_of_nothing_that_trains_yet_has_no_models() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, affine=False))
    tracker = Tracker(Window(3, part="1", buffers="latest"), model)
    tracker.update()
    assert tracker.count() == 0 and tracker.value() == {}


def test_a_module_without_values_is_refused_and_may_come_back() -> None:
    model = make_model()
    tracker = Tracker(Window(2), model)
    steps(model, 3, tracker)
    before, own = tracker.averaged_state_dict(), copy.deepcopy(model.state_dict())
    model.to("meta")
    with pytest.raises(ValueError, match=r"^the module is on the device meta, which holds no values"):
        tracker.update()
    with pytest.raises(ValueError, match=r"^the module is on the device meta"):
        Tracker(Window(2), model)
    model.to_empty(device="cpu")
    model.load_state_dict(own)
    assert equal(tracker.averaged_state_dict(), before) and tracker.round == 3


def test_a_module_whose_parameters_were_replaced_is_followed_and_one_that_lost_some_is_refused() -> None:
    model = make_model()
    tracker = Tracker(Window(2), model)
    model.load_state_dict({name: torch.ones_like(t) for name, t in model.state_dict().items()}, assign=True)
    tracker.update()
    assert all(bool((t == 1).all()) for t in tracker.value().values())
    del model[2]
    with pytest.raises(ValueError, match=r"^the module has no 2.weight of shape \[2, 5\] any more"):
        tracker.update()


def test_parameters_that_lie_in_another_order_in_memory_keep_it() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3))
    turned = copy.deepcopy(plain).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    one, other = Tracker(EMA(0.7), plain), Tracker(EMA(0.7), turned)
    for model, tracker in ((plain, one), (turned, other)):
        for value in (1.0, 2.5, 4.0):
            for p in model.parameters():
                p.data.add_(value)
            tracker.update()
    assert equal(one.averaged_state_dict(), other.averaged_state_dict())
    assert equal(one.state_dict(), other.state_dict())
    with other.applied():
        assert turned[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_part_of_nothing_but_numbers_of_batches_is_averaged() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    tracker = Tracker(Window(2, part=("1.num_batches_tracked",), buffers="average"), model)
    for batches in (2, 4):
        model[1].num_batches_tracked.fill_(batches)
        tracker.update()
    assert tracker.averaged_state_dict()["1.num_batches_tracked"] == 3
