"""A tracker of a module whose parameters are frozen and unfrozen during the training."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedsash.averages import EMA, SWA, Average, Tracker, Window
from support.loops import equal, make_model, mean_of, steps


def test_parameters_that_are_frozen_by_now_go_on_in_a_resumed_tracker() -> None:
    model = make_model()
    tracker = Tracker({"all": Window(3), "part": EMA(0.5, part="0")}, model, trajectory_every=1)
    steps(model, 4, tracker)
    model[0].requires_grad_(False)
    resumed = Tracker({"all": Window(3), "part": EMA(0.5, part="2")}, model, trajectory_every=1)
    with pytest.raises(
        ValueError, match=r"^the saved state does not fit this tracker: part is part='0' there and part='2'"
    ):
        resumed.load_state_dict(tracker.state_dict())
    model[0].requires_grad_(True)
    resumed = Tracker(tracker.averages, model, trajectory_every=1)
    model[0].requires_grad_(False)
    resumed.load_state_dict(tracker.state_dict())
    for each in (resumed, tracker):
        each.update()
    assert equal(resumed.state_dict(), tracker.state_dict())
    assert equal(resumed.window(2), tracker.window(2))


def test_a_tracker_that_began_with_frozen_parameters_takes_up_a_state_that_has_them() -> None:
    model = make_model()
    tracker = Tracker(Window(3), model)
    steps(model, 4, tracker)
    again = make_model()
    again[0].requires_grad_(False)
    resumed = Tracker(Window(3), again)
    resumed.load_state_dict(tracker.state_dict())
    assert equal(resumed.value(), tracker.value())


@pytest.mark.parametrize("average", [Window(3), EMA(0.5), SWA(1)], ids=str)
def test_a_parameter_that_is_unfrozen_later_is_averaged_from_the_next_update_on(average: Average) -> None:
    model = make_model()
    model[0].requires_grad_(False)
    tracker = Tracker(average, model)
    early = steps(model, 4, tracker)
    assert set(tracker.value()) == {"2.weight", "2.bias"}
    model[0].requires_grad_(True)
    late = steps(model, 2, tracker)
    alone = copy.deepcopy(model)
    others = {"0.weight": late, "0.bias": late, "2.weight": early + late, "2.bias": early + late}
    for name, models in others.items():
        reference = Tracker(average, alone)
        for state in models:
            alone.load_state_dict(state)
            reference.update()
        assert torch.equal(tracker.value()[name], reference.value()[name])
    resumed = Tracker(average, model)
    resumed.load_state_dict(tracker.state_dict())
    assert equal(resumed.state_dict(), tracker.state_dict())
    resumed.update()
    tracker.update()
    assert equal(resumed.value(), tracker.value())


def test_a_part_that_is_frozen_while_another_layer_is_unfrozen_keeps_its_average() -> None:
    model = make_model()
    model[0].requires_grad_(False)
    tracker = Tracker({"part": Window(2, part="2"), "head": Window(2, part="classifier")}, model)
    steps(model, 3, tracker)
    before = tracker.value("part")
    model[0].requires_grad_(True)
    model[2].requires_grad_(False)
    tracker.update()
    assert equal(tracker.value("head"), tracker.value("part"))
    assert tracker.value("part").keys() == before.keys() == {"2.weight", "2.bias"}


def test_the_classifier_is_the_same_layer_when_a_later_one_is_unfrozen_and_in_a_resumed_tracker() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2))
    model[2].requires_grad_(False)
    model[1].bias.requires_grad_(False)
    averages = {"head": Window(2, part="classifier"), "rest": Window(2, part="extractor")}
    tracker = Tracker(averages, model)
    tracker.update()
    state = tracker.state_dict()
    model.requires_grad_(True)
    resumed = Tracker(averages, model)
    resumed.load_state_dict(state)
    for each in (tracker, resumed):
        each.update()
        assert each.value("head").keys() == {"1.weight", "1.bias"}
        assert each.value("rest").keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert equal(resumed.state_dict(), tracker.state_dict())


def test_statistics_of_a_layer_that_is_unfrozen_later_join_too() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 2))
    model[1].eval()
    tracker = Tracker(Window(2), model)
    steps(model, 2, tracker)
    assert "1.running_mean" not in tracker.value()
    model.eval()
    tracker.update()
    assert "1.running_mean" not in tracker.value(), "in eval mode nothing says that the layer will train"
    model.train()
    late = steps(model, 3, tracker)
    torch.testing.assert_close(tracker.value()["1.running_mean"], mean_of(late[-2:], "1.running_mean"))


def test_a_frozen_layer_keeps_its_statistics_also_where_the_whole_module_is_in_eval_mode() -> None:
    """A trainer evaluates in eval mode, in which a frozen layer looks like the others."""
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    tracker = Tracker(Window(3, buffers="re-estimate"), model)
    tracker.update()
    model[1].eval()
    for _ in range(2):
        steps(model, 1)
        tracker.update()
    own, batches = model[1].running_mean.clone(), [torch.randn(8, 4)]
    model.eval()
    resumed = Tracker(Window(3, buffers="re-estimate"), model)
    resumed.load_state_dict(tracker.state_dict())
    for each in (tracker, resumed):
        found = each.averaged_state_dict(batches=batches)
        assert torch.equal(found["1.running_mean"], own)
        assert not torch.equal(found["2.running_mean"], model[2].running_mean)
    model.train()
    model[1].train()
    assert not torch.equal(tracker.averaged_state_dict(batches=batches)["1.running_mean"], own)


def test_a_layer_that_was_replaced_in_eval_mode_is_not_taken_for_a_frozen_one() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    tracker = Tracker(Window(3, buffers="re-estimate"), model)
    tracker.update()
    model.eval()
    model[1] = nn.BatchNorm1d(2)
    model.train()
    tracker.update()
    assert bool(tracker.averaged_state_dict(batches=[torch.randn(8, 4)])["1.running_mean"].abs().min() > 0)


def test_statistics_may_be_calibrated_while_no_parameter_trains() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module[1].eval()
    tracker = Tracker(Window(3), module)
    tracker.update()
    module.requires_grad_(False)
    module[1].train()
    module(torch.randn(4, 2))
    tracker.update()
    assert tracker.count() == 2 and "0.weight" in tracker.value()
