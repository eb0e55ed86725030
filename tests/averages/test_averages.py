"""Windows, SWA, EMA: identities in float64, the rounds that they observe, slices, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash.averages import AVERAGES, EMA, SWA, Average, Observer, Window
from support.by_default import rotated
from support.trajectories import ONE_OF_EACH, Alone, final, follow, same_bits, trajectory

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


# --- identities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "average, dtype",
    rotated([Window(1), EMA(0.0), EMA(0.0, start="zero"), EMA(0.0, start="initial")], DTYPES),
    ids=str,
)
def test_these_are_the_model_bitwise(average: Average, dtype: torch.dtype) -> None:
    models = trajectory(6, dtype=dtype)
    alone = Alone(average, models[0])
    for round, w in enumerate(models[1:], start=1):
        assert same_bits(alone.observe(w, round).value(w), w)


def test_a_window_with_one_model_is_that_model_bitwise() -> None:
    w = torch.tensor([0.1, -0.0, 1e-310, 1e300], dtype=torch.float64)
    assert same_bits(Alone(Window(5), w).observe(w, 1).value(torch.zeros_like(w)), w)


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
def test_before_anything_is_observed_the_value_is_the_current_model(average: Average) -> None:
    w_0, w = trajectory(1)
    assert same_bits(Alone(average, w_0).value(w), w)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_window_of_a_linear_trajectory_is_its_midpoint(size: int) -> None:
    a, b = trajectory(1)
    models = torch.stack([a + t * b for t in range(21)])
    torch.testing.assert_close(final(Window(size), models), a + (20 - (size - 1) / 2) * b, rtol=1e-14, atol=0)


def test_wima_equation_4_is_equation_6() -> None:
    """The window is SGD from the model before it, with a learning rate that falls linearly within the window."""
    size, rounds, lr = 6, 15, 0.3
    gradients = trajectory(rounds)
    models = torch.cat([torch.ones(1, 7, dtype=torch.float64), 1 - lr * gradients[:-1].cumsum(0)])
    before = rounds - size
    decayed = sum((size - k) / size * gradients[before + k] for k in range(size))
    torch.testing.assert_close(final(Window(size), models), models[before] - lr * decayed, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "average, dtype", rotated([a for a in ONE_OF_EACH if a != EMA(0.7, start="zero")], DTYPES), ids=str
)
def test_a_constant_model_is_unchanged_bitwise(average: Average, dtype: torch.dtype) -> None:
    models = trajectory(1, d=100, dtype=dtype)[1].expand(30, 100)
    assert same_bits(final(average, models), models[0])


def test_a_constant_model_is_unchanged_by_the_corrected_ema() -> None:
    models = trajectory(1)[1].expand(30, 7)
    torch.testing.assert_close(final(EMA(0.999, start="zero"), models), models[0], rtol=1e-13, atol=0)


@pytest.mark.parametrize(("start", "first"), [("first", 1), ("initial", 0)])
def test_ema_closed_form(start: Any, first: int) -> None:
    decay, models = 0.8, trajectory(12)
    later = sum((1 - decay) * decay ** (12 - t) * models[t] for t in range(first + 1, 13))
    expected = decay ** (12 - first) * models[first] + later
    torch.testing.assert_close(final(EMA(decay, start=start), models), expected, rtol=1e-13, atol=1e-15)


def test_ema_from_zero_is_a_weighted_mean() -> None:
    decay, models = 0.8, trajectory(12)
    weights = torch.tensor([decay ** (12 - t) for t in range(1, 13)], dtype=torch.float64)
    expected = (weights / weights.sum()) @ models[1:]
    torch.testing.assert_close(final(EMA(decay, start="zero"), models), expected, rtol=1e-13, atol=1e-15)


def test_swa_without_cycle_is_the_plain_mean_from_its_start() -> None:
    models = trajectory(50)
    torch.testing.assert_close(final(SWA(start=11), models), models[11:].mean(0), rtol=1e-13, atol=1e-16)


def test_swa_is_a_window_that_never_loses_a_model() -> None:
    models = trajectory(30)
    assert same_bits(final(SWA(start=11), models), final(Window(100, start=11), models))


# --- which rounds are observed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("average", "observed"),
    [
        (Window(5), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        (Window(5, every=4), [4, 8, 12]),
        (Window(5, start=9), [9, 10, 11, 12]),
        (Window(5, every=4, start=5), [8, 12]),
        (EMA(0.5), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        # From model 5 on the cycles are 5, 6, 7 and 8, 9, 10 and 11, 12.
        (SWA(start=5, cycle=3), [7, 10]),
        (SWA(start=5, cycle=3, collect="top"), [8, 11]),
        (SWA(start=9), [9, 10, 11, 12]),
        (SWA(start=9, collect="top"), [10, 11, 12]),
    ],
    ids=str,
)
def test_observed_rounds(average: Average, observed: list[int]) -> None:
    assert [t for t in range(13) if average.observes(t)] == observed
    models = trajectory(12)
    alone = follow(average, models)
    seen = int(alone.state["seen"])
    assert seen == len(observed)
    assert alone.count == (min(seen, 5) if isinstance(average, Window) else seen)


def test_lawa_is_a_window_over_the_thinned_trajectory() -> None:
    models = trajectory(23)
    torch.testing.assert_close(final(Window(3, every=5), models), models[[10, 15, 20]].mean(0), rtol=1e-13, atol=0)


# --- slices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average, ranges", rotated(ONE_OF_EACH, [[(2, 5)], [(0, 2), (3, 4), (6, 7)]]), ids=str)
def test_an_average_of_a_slice_leaves_the_rest_the_current_model(
    average: Average, ranges: list[tuple[int, int]]
) -> None:
    models = trajectory(9)
    inside = torch.zeros(7, dtype=torch.bool)
    for start, stop in ranges:
        inside[start:stop] = True
    value = final(Observer(average, ranges), models)
    assert same_bits(value[inside], final(average, models[:, inside]))
    assert same_bits(value[~inside], models[-1, ~inside])


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
def test_observing_the_whole_model_is_the_average_itself(average: Average) -> None:
    models = trajectory(9)
    assert same_bits(final(Observer(average, [(0, 7)]), models), final(average, models))


def test_the_two_slices_of_a_model_make_the_whole() -> None:
    models = trajectory(9)
    whole, left, right = (final(Observer(Window(4), [r]), models) for r in [(0, 7), (0, 3), (3, 7)])
    assert same_bits(torch.cat([left[:3], right[3:]]), whole)


def test_retracting_through_an_observer() -> None:
    models = trajectory(5)
    observer = Observer(Window(3), [(1, 4)])
    alone = follow(observer, models).retract(4)
    assert alone.count == 2
    expected = models[5].clone()
    expected[1:4] = models[[3, 5], 1:4].mean(0)
    torch.testing.assert_close(alone.value(models[5]), expected, rtol=1e-14, atol=0)


# --- refusals -----------------------------------------------------------------------------------------------------


def test_retracting_a_round_that_is_not_there() -> None:
    window = follow(Window(3), trajectory(5))
    with pytest.raises(ValueError, match=r"round = 2: not in the window, which holds \[3, 4, 5\]"):
        window.retract(2)
    for round in (3, 4, 5):
        window.retract(round)
    with pytest.raises(ValueError, match="round = -1: not in the window, which holds none"):
        window.retract(-1)


@pytest.mark.parametrize("average", [SWA(start=1), EMA(0.5)], ids=str)
def test_only_a_window_can_retract(average: Average) -> None:
    with pytest.raises(ValueError, match="only a Window"):
        follow(average, trajectory(3)).retract(2)


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        (
            "window",
            {"size": 5, "storage": "tape"},
            "Window.storage = 'tape': must be 'auto' or 'device' or 'host' or 'disk'",
        ),
        ("swa", {"start": 1, "collect": "middle"}, "SWA.collect = 'middle': must be 'bottom' or 'top'"),
        ("ema", {"decay": 0.9, "start": "one"}, "EMA.start = 'one': must be 'first' or 'initial' or 'zero'"),
    ],
)
def test_a_bad_field_is_refused_by_name(name: str, table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        AVERAGES[name](**table)
    assert str(refusal.value) == message


@pytest.mark.parametrize("w", [torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64)], ids=["matrix", "integers"])
def test_a_model_is_one_flat_float_vector(w: Tensor) -> None:
    for average in (Window(2), SWA(start=1), EMA(0.5)):
        with pytest.raises(ValueError, match="must be one flat float vector"):
            average.init(w)


@pytest.mark.parametrize("ranges", [[], [(3, 2)], [(4, 6), (0, 2)], [(-1, 2)]], ids=str)
def test_ranges_of_an_observer_ascend(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="must be ascending ranges"):
        Observer(Window(2), ranges)
