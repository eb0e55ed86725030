"""`check_tracking`: what a tracker keeps, and that each property is noticed where it does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from benchmarks.averagers.adapters import OfAveragedModel
from torch import nn
from torch.optim.swa_utils import AveragedModel

from fedsash.averages import BEMA, EMA, SWA, Average, PowerEMA, Tracker, Window
from fedsash.testing import TrackingAdapter, check_tracking, tracking_results
from fedsash.testing.tracking import PROPERTIES


class Tracked(TrackingAdapter):
    """A tracker that a hook of the optimiser updates."""

    average: Average = EMA(0.9)
    trajectory_every = 0

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        super().__init__(module, optimiser)
        self.tracker = Tracker(self.average, module, trajectory_every=self.trajectory_every)
        optimiser.register_step_post_hook(self.tracker.after_step)

    def update(self) -> None:
        pass

    def applied(self) -> AbstractContextManager[nn.Module]:
        return self.tracker.applied()

    def state_dict(self) -> Mapping[str, Any]:
        return self.tracker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tracker.load_state_dict(state)

    def final_model(self) -> nn.Module:
        return self.tracker.averaged_module()


def test_a_tracker_keeps_all_properties() -> None:
    check_tracking(Tracked)


AVERAGES = {
    "mean": SWA(1),
    "window": Window(3),
    "every second": Window(3, every=2),
    "on disk": Window(3, storage="disk"),
    "double": EMA(0.9, precision="double"),
    "from zero": EMA(0.9, start="zero"),
    "warmup": EMA(0.9, warmup=True),
    "latest statistics": EMA(0.9, buffers="latest"),
    "power": PowerEMA(0.1),
    "bema": BEMA(),
}


@pytest.mark.full
@pytest.mark.parametrize("name", AVERAGES)
def test_a_tracker_keeps_all_properties_with_every_average(name: str) -> None:
    class Other(Tracked):
        average = AVERAGES[name]
        extrapolates = AVERAGES[name].extrapolates

    check_tracking(Other)


@pytest.mark.full
def test_a_tracker_with_running_sums_keeps_all_properties() -> None:
    class WithSums(Tracked):
        trajectory_every = 2

    check_tracking(WithSums)


class Faulty(OfAveragedModel):
    """It trains what it validates, forgets its state, ends with the initial model and can't have tied parameters."""

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        super().__init__(module, optimiser)
        if len(dict(module.named_parameters(remove_duplicate=False))) != len(dict(module.named_parameters())):
            raise ValueError("tied")
        self.initial = AveragedModel(module)  # type: ignore[no-untyped-call]
        self.trains = [parameter for parameter in module.parameters() if parameter.requires_grad]

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        with torch.no_grad():
            for parameter, average in zip(self.module.parameters(), self.average.module.parameters(), strict=True):
                parameter.copy_(average)
        yield self.module

    def state_dict(self) -> Mapping[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def final_model(self) -> nn.Module:
        module: nn.Module = self.initial.module
        return module


def outcomes(adapter: type[TrackingAdapter]) -> dict[str, str]:
    return {result.name: result.outcome for result in tracking_results(adapter)}


def test_each_fault_is_named() -> None:
    own = outcomes(OfAveragedModel)
    wrong = {name for name, outcome in own.items() if outcome == "wrong"}
    assert wrong == {
        "before the first update",
        "validation in half precision",
        "a step that is not finite",
        "a step that a scaler skips",
        "accumulated gradients",
        "bfloat16",
        "a module that grew",
    }
    assert own["FSDP2"] == "error" and own["validation in mid-training"] == "right"
    faulty = outcomes(Faulty)
    assert faulty["tied parameters"] == "error"
    for name in ("validation in mid-training", "an error in validation", "resumed at any step", "after training"):
        assert faulty[name] == "wrong"


def test_what_is_not_promised_is_no_error() -> None:
    class Promising(OfAveragedModel):
        promises = ("bfloat16",)

    class ModestOne(OfAveragedModel):
        promises = ("frozen parameters",)

    check_tracking(ModestOne)
    with pytest.raises(AssertionError, match=r"^Promising: the average of bfloat16 parameters must .* \[bfloat16\]$"):
        check_tracking(Promising)


def test_every_property_says_in_one_line_what_is_right() -> None:
    for name, check in PROPERTIES.items():
        assert check.__doc__ is not None and "\n" not in check.__doc__, name
