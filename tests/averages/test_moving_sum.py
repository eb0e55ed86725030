"""The sum of a window's models: exact whenever it is asked for, and no work as long as nobody asks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedsash.averages import Observer, Observers, Pieces, Window
from fedsash.averages.moving_sum import MovingSum
from fedsash.vector.exact_sums import zero
from support.by_default import full
from support.trajectories import Alone, follow, same_bits, trajectory


def zeros(like: Tensor) -> tuple[Tensor, Tensor]:
    return zero(like), zero(like)


def wild(rounds: int, d: int = 3) -> Tensor:
    """Models whose values differ by 16 orders of magnitude from round to round."""
    scales = 10.0 ** torch.randint(-8, 9, (rounds + 1, 1), generator=torch.Generator().manual_seed(1))
    models: Tensor = (trajectory(rounds, d, torch.float64) * scales).float()
    return models


class Sums(TorchDispatchMode):
    """Counts the models that go into sums, by their conversions to float64."""

    models = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default and (args[0].dtype, args[1].dtype) == (torch.float64, torch.float32):
            self.models += 1
        return func(*args, **(kwargs or {}))


@settings(max_examples=10)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), asked=st.lists(st.booleans(), min_size=30, max_size=30)
)
def test_when_it_is_asked_changes_nothing(sizes: list[int], asked: list[bool]) -> None:
    """Windows that share their models, asked in some rounds, have the bytes of one that is asked for the first time."""
    models = wild(30)
    observers = Observers({f"w{i}": Observer(Window(size), [(0, 3)]) for i, size in enumerate(sizes)})

    class States:
        averages, past = observers.init(models[0])

    for round in range(1, 31):
        observers.observe(States, models[round], round)
        for i, size in enumerate(sizes):
            if asked[round - 1] and (round + i) % 2:
                first = follow(Window(size), models[: round + 1]).value(models[0])
                assert same_bits(observers.value(States, f"w{i}", models[0]), first)


@pytest.mark.parametrize(
    ("every", "most"),
    [
        pytest.param(1, 2, marks=pytest.mark.slow),
        (10, 2),
        pytest.param(50, 2, marks=pytest.mark.slow),
        full(100, 1),
        full(1000, 0.1),
    ],
)
def test_a_round_takes_two_models_at_most_and_fewer_the_more_rarely_it_is_asked(every: int, most: float) -> None:
    rounds = min(50 * every, 2000)
    models = trajectory(200 + rounds, d=2, dtype=torch.float32)
    window = follow(Window(100), models[:201])
    with Sums() as sums:
        for round in range(201, 201 + rounds):
            window.observe(models[round], round)
            if round % every == 0:
                window.value(models[0])
    assert 0 < sums.models <= 2 * 100 + most * rounds


def test_a_window_that_nobody_asks_adds_nothing_up() -> None:
    models = trajectory(300, d=2, dtype=torch.float32)
    with Sums() as sums:
        follow(Window(100), models)
    assert sums.models == 0


def test_what_is_saved_are_the_rounds_and_the_models() -> None:
    models = wild(20)
    window = follow(Window(4), models)
    assert window.state.keys() == {"rounds", "seen"}
    again = Alone(Window(4), models[0])
    again.averages, held = window.averages, dict(window.held)
    again.past["it"].fill(held, held.__getitem__)
    assert same_bits(again.value(models[0]), window.value(models[0]))


def test_models_that_are_filled_in_again_are_added_up_again() -> None:
    models, others = trajectory(9), trajectory(9, seed=1)
    window = follow(Window(3), models)
    window.value(models[0])
    past = window.past["it"]
    past.clear()
    past.fill((7, 8, 9), others.__getitem__)
    assert same_bits(window.value(models[0]), follow(Window(3), others).value(models[0]))


def test_it_takes_the_newest_model_in_the_pass_in_which_it_loses_the_oldest() -> None:
    models, total = dict(enumerate(trajectory(5).unbind())), MovingSum(zeros)
    for first in (1, 2):  # asked often
        total.mean(range(first, first + 3), models.__getitem__, models[0])
    total.lose({2: models[2]}, (3, 4, 5), {5: Pieces.of(models[5])})
    mean = total.mean((3, 4, 5), dict[int, Tensor]().__getitem__, models[0])  # it needs no model any more
    assert same_bits(mean, follow(Window(3), trajectory(5)).value(models[0]))


def test_an_addition_that_was_interrupted_leaves_no_half_of_a_sum() -> None:
    models, total = dict(enumerate(trajectory(5).unbind())), MovingSum(zeros)
    right = follow(Window(3), trajectory(5)).value(models[0])
    short = torch.ones(len(models[0]) - 1, dtype=models[0].dtype)  # ends an addition when others have been added
    for before in ((1, 2, 3), (2, 3, 4)):
        total.mean(before, models.__getitem__, models[0])
    for first in (0, 3):
        with pytest.raises((RuntimeError, ValueError)):
            total.mean((first, 5, 6), (models | {6: short}).__getitem__, models[0])
        assert same_bits(total.mean((3, 4, 5), models.__getitem__, models[0]), right)
    total.mean((2, 3, 4), models.__getitem__, models[0])
    total.mean((1, 2, 3), models.__getitem__, models[0])
    with pytest.raises((RuntimeError, ValueError)):
        total.lose({1: short}, (2, 3, 4), {})
    assert same_bits(total.mean((3, 4, 5), models.__getitem__, models[0]), right)
