"""Windows, SWA, EMA: identities in float64, exactness in float32, states that are tensors only."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedsash.averages import AVERAGES, EMA, SWA, Average, Observer, State, Window

ONE_OF_EACH: list[Average] = [
    Window(1),
    Window(3),
    Window(3, every=2, start=3),
    SWA(start=2),
    SWA(start=2, cycle=2, collect="top"),
    EMA(0.7),
    EMA(0.7, start="initial"),
    EMA(0.7, start="zero"),
]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def trajectory(rounds: int, d: int = 7, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """`w_0 ... w_rounds` `[rounds + 1, d]`: a random walk, as training is."""
    steps = torch.randn(rounds + 1, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (steps * 0.01).cumsum(0).to(dtype)


def follow(average: Average | Observer, models: Tensor, folder: Path | None = None) -> State:
    """The state after all rounds of a trajectory."""
    state = average.init(models[0], folder)
    for round, w in enumerate(models[1:], start=1):
        state = average.observe(state, w, round)
    return state


def final(average: Average | Observer, models: Tensor, folder: Path | None = None) -> Tensor:
    return average.value(follow(average, models, folder), models[-1])


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def assert_one_rounding(value: Tensor, models: list[Tensor], slack: float = 0.0) -> None:
    """Each element is its exact mean (rational arithmetic), rounded once; `slack` is absolute."""
    for i, found in enumerate(value.tolist()):
        exact = sum(Fraction(w[i].item()) for w in models) / len(models)
        half_ulp = Fraction(float(np.spacing(np.abs(value[i].numpy())))) / 2
        assert abs(Fraction(found) - exact) <= half_ulp * (1 + Fraction(1, 2**20)) + Fraction(slack)


# --- identities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("average", [Window(1), EMA(0.0), EMA(0.0, start="zero"), EMA(0.0, start="initial")], ids=str)
def test_these_are_the_model_bitwise(average: Average, dtype: torch.dtype) -> None:
    models = trajectory(6, dtype=dtype)
    state = average.init(models[0])
    for round, w in enumerate(models[1:], start=1):
        assert same_bits(average.value(average.observe(state, w, round), w), w)


def test_a_window_with_one_model_is_that_model_bitwise() -> None:
    w = torch.tensor([0.1, -0.0, 1e-310, 1e300], dtype=torch.float64)
    window = Window(5)
    state = window.observe(window.init(w), w, 1)
    assert same_bits(window.value(state, torch.zeros_like(w)), w)


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
def test_before_anything_is_observed_the_value_is_the_current_model(average: Average) -> None:
    w_0, w = trajectory(1)
    assert same_bits(average.value(average.init(w_0), w), w)


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("average", [a for a in ONE_OF_EACH if a != EMA(0.7, start="zero")], ids=str)
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
    torch.testing.assert_close(final(SWA(start=10), models), models[11:].mean(0), rtol=1e-13, atol=1e-16)


def test_swa_is_a_window_that_never_loses_a_model() -> None:
    models = trajectory(30)
    assert same_bits(final(SWA(start=10), models), final(Window(100, start=11), models))


# --- which rounds are observed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("average", "observed"),
    [
        (Window(5), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        (Window(5, every=4), [4, 8, 12]),
        (Window(5, start=9), [9, 10, 11, 12]),
        (Window(5, every=4, start=5), [8, 12]),
        (EMA(0.5), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        # After round index i the model has number i + 1. Bottom: i - 4 = 2, 5. Top: i - 4 = 3, 6 (0 is excluded).
        (SWA(start=4, cycle=3), [7, 10]),
        (SWA(start=4, cycle=3, collect="top"), [8, 11]),
        (SWA(start=8), [9, 10, 11, 12]),
        (SWA(start=8, collect="top"), [10, 11, 12]),
    ],
    ids=str,
)
def test_observed_rounds(average: Average, observed: list[int]) -> None:
    assert [t for t in range(13) if average.observes(t)] == observed
    models = trajectory(12)
    state = follow(average, models)
    seen = int(state["seen"])
    assert seen == len(observed)
    assert average.count(state) == (min(seen, 5) if isinstance(average, Window) else seen)


def test_lawa_is_a_window_over_the_thinned_trajectory() -> None:
    models = trajectory(23)
    torch.testing.assert_close(final(Window(3, every=5), models), models[[10, 15, 20]].mean(0), rtol=1e-13, atol=0)


# --- exactness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_window_is_exact_to_one_rounding_after_10_000_rounds_and_huge_values(dtype: torch.dtype) -> None:
    size, d = 100, 12
    models = trajectory(10_000, d, dtype)
    models[3000:3250] *= 1e8
    checked = {50, 2999, 3050, 3249, 3300, 3348, 3349, 3350, 9999, 10_000}
    window = Window(size)
    state = window.init(models[0])
    for round, w in enumerate(models[1:], start=1):
        window.observe(state, w, round)
        if round in checked:
            last = models[max(1, round + 1 - size) : round + 1]
            assert_one_rounding(window.value(state, w), list(last))


def test_window_equals_fsum_across_chunks() -> None:
    """A model longer than one chunk of the running sum, with a last chunk that isn't full."""
    models = trajectory(12, d=3 * 2**14 + 5, dtype=torch.float32)
    value = final(Window(4), models)
    for i in [0, 2**14 - 1, 2**14, 3 * 2**14, 3 * 2**14 + 4]:
        assert value[i].item() == np.float32(math.fsum(models[-4:, i].tolist()) / 4)


VALUES = {
    torch.float32: st.floats(-(2.0**30), 2.0**30, width=32),
    torch.float64: st.floats(-(2.0**30), 2.0**30),
}


@pytest.mark.parametrize("dtype", VALUES)
@given(data=st.data())
def test_window_agrees_with_a_list(dtype: torch.dtype, data: st.DataObject) -> None:
    """Observing and retracting in any order leaves the exact mean of the models that a plain list would hold."""
    window = Window(data.draw(st.integers(1, 4)), every=data.draw(st.integers(1, 2)))
    fallback = torch.full((2,), 0.5, dtype=dtype)
    state = window.init(fallback)
    kept: list[tuple[int, Tensor | None]] = []
    for round in range(1, data.draw(st.integers(0, 12)) + 1):
        w = torch.tensor(data.draw(st.lists(VALUES[dtype], min_size=2, max_size=2)), dtype=dtype)
        window.observe(state, w, round)
        if round % window.every == 0:
            kept = [*kept, (round, w)][-window.size :]
        held = [r for r, model in kept if model is not None]
        if held and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(held))
            window.retract(state, gone)
            kept = [(r, None if r == gone else model) for r, model in kept]
        present = [model for _, model in kept if model is not None]
        assert window.count(state) == len(present)
        # Beyond the one rounding: n^2 * 2^-106 of the largest sum on the way (module sums).
        assert_one_rounding(window.value(state, fallback), present or [fallback], slack=2.0**-60)


def test_values_that_are_not_finite_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    models = trajectory(6)
    bad = models.clone()
    bad[4, 2] = math.nan
    bad[5, 3] = -math.inf
    for average in (Window(3), SWA(start=0), EMA(0.5)):
        state = average.init(models[0])
        for round in (1, 2, 3, 6):
            average.observe(state, models[round], round)
        assert same_bits(final(average, bad), average.value(state, models[6]))
    assert "round 4: the model is not finite; Window leaves it out" in caplog.text


# --- state and memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
def test_saving_and_loading_the_state_changes_nothing(average: Average, tmp_path: Path) -> None:
    models = trajectory(20, dtype=torch.float32)
    state = follow(average, models[:10])
    assert all(isinstance(value, Tensor) for value in state.values())
    save_file(state, tmp_path / "state.safetensors")
    state = load_file(tmp_path / "state.safetensors")
    for round in range(10, 21):
        average.observe(state, models[round], round)
    uninterrupted = follow(average, models)
    assert all(same_bits(state[name].reshape(-1), uninterrupted[name].reshape(-1)) for name in uninterrupted)


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
def test_nothing_is_shared_with_the_caller(average: Average) -> None:
    models = trajectory(8)
    expected = final(average, models)
    w = models[0].clone()
    state = average.init(w)
    for round in range(1, 9):
        w.copy_(models[round])
        average.observe(state, w, round)
        assert torch.equal(w, models[round])
        average.value(state, w).zero_()
        assert torch.equal(w, models[round])
        w.zero_()
    assert same_bits(average.value(state, models[8]), expected)


def test_a_model_with_a_gradient_can_be_observed() -> None:
    w = torch.ones(3, requires_grad=True)
    for average in ONE_OF_EACH:
        state = average.observe(average.init(w), w, 3)
        assert not average.value(state, w).requires_grad


@pytest.mark.parametrize("storage", ["auto", "device", "host", "disk"])
def test_storages_give_the_same_bytes(storage: Any, tmp_path: Path) -> None:
    models = trajectory(13, dtype=torch.float32)
    window = Window(4, storage=storage)
    state, reference = follow(window, models, tmp_path / "window"), follow(Window(4), models)
    for round in (12, 10):
        assert all(torch.equal(state[name], reference[name]) for name in reference)
        window.retract(state, round)
        Window(4).retract(reference, round)


def test_the_file_of_a_window_leaves_nothing_behind(tmp_path: Path) -> None:
    state = follow(Window(3, storage="disk"), trajectory(5), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert state["models"].shape == (3, 7)


def test_a_disk_without_room_is_an_error_at_once() -> None:
    with pytest.raises(OSError, match=r"100000000 rows like \[1000000\] take 400,000,000,000,000 bytes"):
        Window(10**8, storage="disk").init(torch.zeros(10**6))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system has no /proc/self/statm")
@pytest.mark.parametrize("storage", ["host", "disk"])
def test_slots_take_memory_when_they_are_used(storage: Any, tmp_path: Path) -> None:
    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    w = torch.ones(100_000)
    before = resident_pages()
    state = Window(2000, storage=storage).init(w, tmp_path)
    assert state["models"].nbytes == 800_000_000
    assert (resident_pages() - before) * 4096 < 80_000_000


class ElementCounter(TorchDispatchMode):
    """Counts the elements of all tensors that go into or come out of an operation."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # Taking a row of the ring is a view: the ring goes in, but only the row is touched.
        touched = tree_leaves(out) if func.is_view else tree_leaves((args, kwargs, out))
        self.elements += sum(t.numel() for t in touched if isinstance(t, Tensor))
        return out


def test_a_round_costs_the_same_whatever_the_size() -> None:
    costs = []
    for size in (5, 500):
        models = trajectory(size + 3)
        window = Window(size)
        state = follow(window, models[:-1])
        with ElementCounter() as counter:
            window.observe(state, models[-1], size + 3)
        costs.append(counter.elements)
    assert costs[0] == costs[1] > 0


# --- slices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
@pytest.mark.parametrize("ranges", [[(2, 5)], [(0, 2), (3, 4), (6, 7)]], ids=str)
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
    state = observer.retract(follow(observer, models), 4)
    assert observer.count(state) == 2
    expected = models[5].clone()
    expected[1:4] = models[[3, 5], 1:4].mean(0)
    torch.testing.assert_close(observer.value(state, models[5]), expected, rtol=1e-14, atol=0)


# --- refusals -----------------------------------------------------------------------------------------------------


def test_retracting_a_round_that_is_not_there() -> None:
    window = Window(3)
    state = follow(window, trajectory(5))
    with pytest.raises(ValueError, match=r"round = 2: not in the window, which holds \[3, 4, 5\]"):
        window.retract(state, 2)
    for round in (3, 4, 5):
        window.retract(state, round)
    with pytest.raises(ValueError, match="round = -1: not in the window, which holds none"):
        window.retract(state, -1)


@pytest.mark.parametrize("average", [SWA(start=0), EMA(0.5)], ids=str)
def test_only_a_window_can_retract(average: Average) -> None:
    with pytest.raises(ValueError, match="only a Window"):
        average.retract(follow(average, trajectory(3)), 2)


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("window", {"size": 0}, "Window.size = 0: must be at least 1"),
        ("window", {"size": 5, "every": 0}, "Window.every = 0: must be at least 1"),
        ("window", {"size": 5, "start": 0}, "Window.start = 0: must be at least 1"),
        ("window", {"size": 5, "storage": "tape"}, "Window.storage = 'tape': must be one of auto, device, host, disk"),
        ("swa", {"start": -1}, "SWA.start = -1: must not be negative"),
        ("swa", {"start": 1, "cycle": 0}, "SWA.cycle = 0: must be at least 1"),
        ("swa", {"start": 1, "collect": "middle"}, "SWA.collect = 'middle': must be bottom or top"),
        ("ema", {"decay": 1.0}, "EMA.decay = 1.0: must be at least 0 and less than 1"),
        ("ema", {"decay": 0.9, "start": "one"}, "EMA.start = 'one': must be one of first, initial, zero"),
    ],
)
def test_a_bad_field_is_refused_by_name(name: str, table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        AVERAGES[name](**table)
    assert str(refusal.value) == message


@pytest.mark.parametrize("w", [torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64)], ids=["matrix", "integers"])
def test_a_model_is_one_flat_float_vector(w: Tensor) -> None:
    for average in (Window(2), SWA(start=0), EMA(0.5)):
        with pytest.raises(ValueError, match="must be one flat float vector"):
            average.init(w)


@pytest.mark.parametrize("ranges", [[], [(3, 2)], [(4, 6), (0, 2)], [(-1, 2)]], ids=str)
def test_ranges_of_an_observer_ascend(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="must be ascending ranges"):
        Observer(Window(2), ranges)
