"""EMAs whose length is chosen after the training, from a tracker's running sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsash.averages import EMA, PowerEMA, Tracker, Window
from fedsash.settings.errors import RunError, SettingError
from support.loops import equal, make_model

DECAYS = (0.0, 0.5, 0.9, 0.97)
WIDTHS = (0.05, 0.1, 0.25)


def trained(every: int, steps: int = 24) -> tuple[Tracker, list[dict[str, Tensor]]]:
    """A tracker of a random walk that has each EMA beside the sums, and the models."""
    averages: dict[str, Any] = {f"ema{i}": EMA(decay) for i, decay in enumerate(DECAYS)}
    averages |= {f"power{i}": PowerEMA(width) for i, width in enumerate(WIDTHS)}
    module = make_model().double()
    tracker = Tracker(averages, module, trajectory_every=every)
    generator = torch.Generator().manual_seed(3)
    models = []
    for _ in range(steps):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        tracker.update()
        models.append({name: p.detach().clone() for name, p in module.named_parameters()})
    return tracker, models


def test_with_a_sum_after_each_update_an_ema_afterwards_is_the_one_that_was_kept() -> None:
    tracker, _ = trained(every=1)
    afterwards = {f"ema{i}": tracker.ema(decay) for i, decay in enumerate(DECAYS)}
    afterwards |= {f"power{i}": tracker.power_ema(width) for i, width in enumerate(WIDTHS)}
    for name, approximation in afterwards.items():
        assert approximation.error < 1e-14
        for tensor, value in tracker.value(name).items():
            torch.testing.assert_close(approximation[tensor], value, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("every", [2, 4])
def test_an_ema_afterwards_is_off_by_its_error_times_the_widest_block_at_most(every: int) -> None:
    tracker, models = trained(every)
    afterwards = {f"ema{i}": tracker.ema(decay) for i, decay in enumerate(DECAYS)}
    afterwards |= {f"power{i}": tracker.power_ema(width) for i, width in enumerate(WIDTHS)}
    for name, approximation in afterwards.items():
        for tensor, value in tracker.value(name).items():
            blocks = torch.stack([model[tensor] for model in models]).unflatten(0, (-1, every))
            widest = (blocks.amax(1) - blocks.amin(1)).amax(0)
            off = (approximation[tensor] - value).abs()
            assert bool((off <= approximation.error * widest + 1e-12).all())


def test_an_earlier_end_gives_the_ema_of_then() -> None:
    short, _ = trained(every=4, steps=12)
    long, _ = trained(every=4)
    assert equal(long.ema(0.9, at=12), short.ema(0.9))
    assert long.ema(0.9, at=12).error == short.ema(0.9).error
    assert equal(long.power_ema(0.1, at=12), short.power_ema(0.1))


def test_it_is_applied_like_any_other_and_a_resumed_tracker_has_it() -> None:
    tracker, _ = trained(every=4)
    approximation = tracker.ema(0.97)
    with tracker.applied(approximation) as module:
        assert equal({name: p.detach() for name, p in module.named_parameters()}, approximation)
    resumed = Tracker(tracker.averages, tracker.module, trajectory_every=4)
    resumed.load_state_dict(tracker.state_dict())
    assert equal(resumed.ema(0.97), approximation)


def test_a_parameter_that_was_unfrozen_later_begins_where_an_ema_of_it_would() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).double()
    module[0].requires_grad_(False)
    tracker = Tracker(EMA(0.8), module, trajectory_every=1)
    for step in range(8):
        if step == 3:
            module[0].requires_grad_(True)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += step
        tracker.update()
    kept = tracker.value()
    for name, value in tracker.ema(0.8).items():
        torch.testing.assert_close(value, kept[name], rtol=1e-12, atol=1e-13)
    assert tracker.ema(0.8).keys() == kept.keys()
    assert tracker.ema(0.8, at=2).keys() == {"1.weight", "1.bias"}


def test_what_no_sums_give_is_refused_with_those_there_are() -> None:
    module = make_model()
    with pytest.raises(RunError, match=r"^Tracker\.ema: there are no running sums; a tracker keeps them with"):
        Tracker(Window(2), module).ema(0.9)
    tracker = Tracker(Window(2), module, trajectory_every=3)
    with pytest.raises(
        RunError, match=r"^Tracker\.power_ema: there is no running sum yet; the first is after update 3"
    ):
        tracker.power_ema(0.1)
    for _ in range(4):
        tracker.update()
    with pytest.raises(SettingError, match=r"^at = 4: there are running sums after the updates 3$"):
        tracker.ema(0.9, at=4)
    with pytest.raises(SettingError, match=r"^EMA\.decay = 1\.0: "):
        tracker.ema(1.0)
    with pytest.raises(SettingError, match=r"^PowerEMA\.sigma_rel = 0\.5: "):
        tracker.power_ema(0.5)
