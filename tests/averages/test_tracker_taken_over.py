"""PyTorch's `AveragedModel` goes on in a tracker."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fedsash.averages import BEMA, EMA, SWA, PowerEMA, Tracker, Window
from fedsash.settings.errors import RunError, SettingError
from fedsash.vector import exact_sums
from support.loops import equal, make_model


def norms() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def walk(module: nn.Module, seed: int) -> None:
    """Move all parameters and statistics."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor += torch.rand(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)


def averaged_model(model: nn.Module, steps: int, decay: float | None, use_buffers: bool = False) -> AveragedModel:
    """PyTorch's EMA, or its SWA without a decay, of a walk of the model."""
    averaging = None if decay is None else get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    theirs = AveragedModel(model, multi_avg_fn=averaging, use_buffers=use_buffers)
    for step in range(steps):
        walk(model, step)
        theirs.update_parameters(model)
    return theirs


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_an_ema_goes_on_with_pytorchs_bytes(steps: int, dtype: torch.dtype, use_buffers: bool) -> None:
    model = norms().to(dtype)
    theirs = averaged_model(model, steps, 0.9, use_buffers)
    ours = Tracker(EMA(0.9, buffers="average" if use_buffers else "latest"), model)
    ours.load_averaged_model(theirs.state_dict())
    assert ours.count() == steps
    for step in range(100, 106):
        walk(model, step)
        theirs.update_parameters(model)
        ours.update()
        expected = theirs.module.state_dict()
        found = ours.averaged_state_dict()
        for name, tensor in expected.items():
            if tensor.is_floating_point():
                assert torch.equal(found[name], tensor), name
    assert ours.count() == steps + 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_swa_has_pytorchs_bytes_and_goes_on_to_the_exact_mean(dtype: torch.dtype) -> None:
    model = make_model().to(dtype)
    theirs = averaged_model(model, 7, None)
    begun = copy.deepcopy(theirs.module.state_dict())
    ours = Tracker(SWA(1), model)
    ours.load_averaged_model(theirs.state_dict())
    assert equal(ours.value(), begun)
    models = []
    for step in range(100, 103):
        walk(model, step)
        theirs.update_parameters(model)
        ours.update()
        models.append(copy.deepcopy(model.state_dict()))
    assert ours.count() == 10
    for name, value in ours.value().items():
        rows = zip(begun[name].flatten().tolist(), *(m[name].flatten().tolist() for m in models), strict=True)
        exact = []
        for first, *others in rows:
            exact.append(float((7 * Fraction(first) + sum(map(Fraction, others))) / 10))
        assert torch.equal(value.flatten(), torch.tensor(exact, dtype=torch.float64).to(dtype))
        torch.testing.assert_close(value, theirs.module.state_dict()[name], rtol=1e-6, atol=0)


def test_a_power_ema_and_a_corrected_ema_go_on_from_the_average_as_it_is() -> None:
    model = make_model().double()
    theirs = averaged_model(model, 5, None)
    averages = {"power": PowerEMA(gamma=0.0), "zero": EMA(0.9, start="zero"), "other": EMA(0.5)}
    ours = Tracker(averages, model)
    for name in ("power", "zero"):
        ours.load_averaged_model(theirs.state_dict(), name)
        for tensor, value in ours.value(name).items():
            torch.testing.assert_close(value, theirs.module.state_dict()[tensor], rtol=1e-15, atol=0)
    assert ours.count("other") == 0
    walk(model, 100)
    theirs.update_parameters(model)
    ours.update()
    for tensor, value in ours.value("power").items():  # with gamma = 0 the plain mean
        torch.testing.assert_close(value, theirs.module.state_dict()[tensor], rtol=1e-14, atol=0)


class Inner(nn.Module):
    """A model with a part that is called as wrappers call theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)


@pytest.mark.parametrize(
    "wrapped",
    [lambda model: model, nn.DataParallel, lambda model: torch.compile(model, backend="eager")],
    ids=["plain", "DataParallel", "compiled"],
)
@pytest.mark.parametrize("make", [make_model, Inner])
def test_the_names_of_wrappers_are_left_out(make: Callable[[], nn.Module], wrapped: Any) -> None:
    model = make()
    theirs = AveragedModel(wrapped(model), multi_avg_fn=get_ema_multi_avg_fn(0.5))  # type: ignore[no-untyped-call]
    walk(model, 0)
    theirs.update_parameters(wrapped(model))
    ours = Tracker(EMA(0.5), model)
    ours.load_averaged_model(theirs.state_dict())
    assert equal(ours.value(), {name: p.detach() for name, p in model.named_parameters()})


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda state: state.pop("n_averaged"),
            r"^Tracker\.load_averaged_model: state = .*: must be the state_dict\(\) of",
        ),
        (
            lambda state: state.pop("module.0.weight"),
            r"fit the average ema: 0\.weight is nothing there and \[5, 4\] here",
        ),
        (lambda state: state.update({"module.2.bias": torch.zeros(3)}), r"2\.bias is \[3\] there and \[2\] here$"),
        (lambda state: state["module.2.bias"].fill_(torch.nan), r"ema can't go on from 2\.bias, which is not finite$"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change: Any, line: str) -> None:
    model = make_model()
    state = copy.deepcopy(averaged_model(model, 3, 0.9).state_dict())
    change(state)
    tracker = Tracker({"ema": EMA(0.9)}, model)
    before = copy.deepcopy(tracker.state_dict())
    with pytest.raises((RunError, SettingError), match=line):
        tracker.load_averaged_model(state)
    assert equal(tracker.state_dict(), before)


@pytest.mark.parametrize("average", [Window(3), BEMA(), SWA(2)], ids=["window", "bema", "swa that begins later"])
def test_an_average_that_needs_more_than_an_average_is_refused(average: Any) -> None:
    model = make_model()
    tracker = Tracker(average, model)
    before = copy.deepcopy(tracker.state_dict())
    line = f"^{type(average).__name__}: it can't go on from an average alone; EMA, PowerEMA and SWA can$"
    if isinstance(average, SWA):
        line = r"^SWA\.start = 2: the average has begun, so that it must be 1 here$"
    with pytest.raises(RunError, match=line):
        tracker.load_averaged_model(averaged_model(model, 3, 0.9).state_dict())
    assert equal(tracker.state_dict(), before)


def test_an_averaged_model_itself_is_refused_and_so_is_its_state_where_a_trackers_belongs() -> None:
    model = make_model()
    theirs: Any = averaged_model(model, 1, 0.9)
    tracker = Tracker(EMA(0.9), model)
    with pytest.raises(SettingError, match=r"^Tracker\.load_averaged_model: state = .*: must be the state_dict\(\) of"):
        tracker.load_averaged_model(theirs)
    line = r"^this is the state of an AveragedModel: load_averaged_model\(\) takes it$"
    with pytest.raises(RunError, match=line):
        tracker.load_state_dict(theirs.state_dict())


def test_an_average_of_a_part_takes_over_that_part_and_one_of_nothing_that_trains_is_refused() -> None:
    model = make_model()
    state = averaged_model(model, 1, 0.9).state_dict()
    tracker = Tracker({"all": EMA(0.9), "head": EMA(0.9, part="2")}, model)
    tracker.load_averaged_model(state, "head")
    assert tracker.value("head").keys() == {"2.weight", "2.bias"}
    assert tracker.count("head") == 1 and tracker.count("all") == 0
    plain_norm = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, affine=False))
    empty = Tracker(EMA(0.9, part="1", buffers="latest"), plain_norm)
    with pytest.raises(
        RunError, match=r"^the average average has nothing that trains, so it can't go on from an Avera"
    ):
        empty.load_averaged_model(AveragedModel(plain_norm).state_dict())


@given(
    st.lists(st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100), min_size=1),
    st.integers(1, 2**26 - 1),
)
def test_a_sum_that_is_filled_with_a_model_is_exactly_so_many_times_that_model(values: list[float], count: int) -> None:
    w = torch.tensor(values, dtype=torch.float64)
    high: Tensor = exact_sums.zero(w)
    low: Tensor = exact_sums.zero(w)
    exact_sums.fill(high, low, w, count)
    for h, e, value in zip(high.tolist(), low.tolist(), values, strict=True):
        assert Fraction(h) + Fraction(e) == count * Fraction(value)
    assert torch.equal(exact_sums.mean(high, low, count, w), w)


def test_an_averaged_model_without_a_model_leaves_a_new_tracker_as_it_is_and_no_other_takes_it() -> None:
    model = make_model()
    unused = AveragedModel(model).state_dict()
    tracker = Tracker(EMA(0.9), model)
    tracker.load_averaged_model(unused)
    tracker.update()
    before = copy.deepcopy(tracker.state_dict())
    with pytest.raises(RunError, match=r"^the AveragedModel has averaged no model, and the average average has"):
        tracker.load_averaged_model(unused)
    assert equal(tracker.state_dict(), before)
