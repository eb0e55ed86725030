"""The state of an average is tensors of its own that survive saving, wherever they lie; a round's cost is constant."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedsash.averages import Average, Observer, Observers, Window
from support.trajectories import ONE_OF_EACH, Alone, final, follow, same_bits, trajectory


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
def test_saving_and_loading_the_state_changes_nothing(average: Average, tmp_path: Path) -> None:
    models = trajectory(20, dtype=torch.float32)
    alone = follow(average, models[:10])
    assert all(isinstance(value, Tensor) for value in alone.state.values())
    save_file(alone.state, tmp_path / "state.safetensors")
    alone.averages["it"] = load_file(tmp_path / "state.safetensors")
    for round in range(10, 21):
        alone.observe(models[round], round)
    state, uninterrupted = alone.state, follow(average, models).state
    assert all(same_bits(state[name].reshape(-1), uninterrupted[name].reshape(-1)) for name in uninterrupted)


@pytest.mark.parametrize("average", ONE_OF_EACH, ids=str)
def test_nothing_is_shared_with_the_caller(average: Average) -> None:
    models = trajectory(8)
    expected = final(average, models)
    w = models[0].clone()
    alone = Alone(average, w)
    for round in range(1, 9):
        w.copy_(models[round])
        alone.observe(w, round)
        assert torch.equal(w, models[round])
        alone.value(w).zero_()
        assert torch.equal(w, models[round])
        w.zero_()
    assert same_bits(alone.value(models[8]), expected)


def test_a_model_with_a_gradient_can_be_observed() -> None:
    w = torch.ones(3, requires_grad=True)
    for average in ONE_OF_EACH:
        assert not Alone(average, w).observe(w, 3).value(w).requires_grad


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system has no /proc/self/statm")
@pytest.mark.parametrize("storage", ["host", "disk"])
def test_slots_take_memory_when_they_are_used(storage: Any, tmp_path: Path) -> None:
    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    w = torch.ones(100_000)
    before = resident_pages()
    window = Alone(Window(2000, storage=storage), w, tmp_path)  # 800 MB
    assert not window.held
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


@pytest.mark.parametrize("asked", [False, True])
def test_a_round_costs_the_same_whatever_the_size(asked: bool) -> None:
    costs = []
    for size in (5, 500):
        models = trajectory(size + 3)
        window = follow(Window(size), models[:-3])
        for round in range(size + 1, size + 3):
            window.observe(models[round], round).value(models[round])
        with ElementCounter() as counter:
            window.observe(models[-1], size + 3)
            if asked:
                window.value(models[-1])
        costs.append(counter.elements)
    assert costs[0] == costs[1] > 0


def test_a_window_without_room_is_refused_before_anything_is_filled_with_numbers(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    observers = Observers({"w": Observer(Window(10**9, storage="disk"), [(0, 1000)])})
    with pytest.raises(OSError, match="free"):
        observers.init(torch.zeros(1000), tmp_path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in KiB, on macOS in bytes
    assert grown * (1 if sys.platform == "darwin" else 1024) < 2**30, "the slots' numbers would take 8 GB"
