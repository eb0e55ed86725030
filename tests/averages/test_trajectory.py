"""The models of past rounds: each once for all windows that need it, and no longer than one of them does."""

from __future__ import annotations

import itertools
import math
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedsash import Broadcast
from fedsash.averages import EMA, SWA, Average, Observer, Observers, Window
from fedsash.averages.places import Memory, place_for
from fedsash.averages.trajectory import Trajectory
from support.trajectories import follow, same_bits, trajectory
from support.worlds import after, federation

no_deadline = settings(deadline=None, max_examples=50)


class Together:
    """Averages that follow one trajectory side by side."""

    def __init__(self, averages: dict[str, Average], w: Tensor, slices: dict[str, list[tuple[int, int]]] | None = None):
        ranges = slices or {}
        self.observers = Observers({name: Observer(a, ranges.get(name, [(0, len(w))])) for name, a in averages.items()})
        self.averages, self.past = self.observers.init(w)

    def observe(self, w: Tensor, round: int) -> None:
        self.observers.observe(self, w, round)

    @property
    def trajectories(self) -> list[Trajectory]:
        return list({id(past.trajectory): past.trajectory for past in self.past.values()}.values())


def room(of: Trajectory) -> int:
    """The number of models for which there is memory."""
    assert isinstance(of.place, Memory)
    return of.place.room


@pytest.mark.full
def test_windows_of_5_to_200_hold_200_models() -> None:
    models = trajectory(450)
    sizes = (5, 10, 50, 100, 200)
    together = Together({f"w{size}": Window(size) for size in sizes}, models[0])
    for round in range(1, 451):
        together.observe(models[round], round)
        (held,) = together.trajectories
        assert held.rounds == list(range(max(1, round - 199), round + 1))
        assert room(held) == 200
    for size in sizes:
        value = together.observers.value(together, f"w{size}", models[0])
        assert same_bits(value, follow(Window(size), models).value(models[0]))
        assert sorted(together.past[f"w{size}"]) == list(range(451 - size, 451))


def test_a_model_is_one_copy_bitwise_and_its_row_goes_to_the_next() -> None:
    models = trajectory(9, dtype=torch.bfloat16)
    together = Together({"a": Window(2), "b": Window(4), "e": EMA(0.5)}, models[0])
    places = []
    for round in range(1, 10):
        together.observe(models[round], round)
        a, b = together.past["a"], together.past["b"]
        assert all(a[r].data_ptr() == b[r].data_ptr() and same_bits(a[r], models[r]) for r in a)
        places.append(b[round].data_ptr())
    assert places[4:8] == places[:4] and together.past.keys() == {"a", "b"}


WINDOW = st.builds(Window, st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))


@settings(max_examples=20)
@given(windows=st.lists(WINDOW, min_size=1, max_size=4), data=st.data())
def test_windows_together_are_the_windows_alone(windows: list[Window], data: st.DataObject) -> None:
    """Whatever is observed, left out or retracted: the same sums, and the union of what each alone would hold."""
    models = trajectory(14, d=3)
    for bad in data.draw(st.sets(st.integers(1, 14), max_size=3)):
        models[bad, 1] = math.nan
    names = {f"w{i}": window for i, window in enumerate(windows)}
    together = Together(dict(names), models[0])
    alone = {name: follow(window, models[:1]) for name, window in names.items()}
    for round in range(1, 15):
        together.observe(models[round], round)
        for other in alone.values():
            other.observe(models[round], round)
        name = data.draw(st.sampled_from(sorted(names)))
        if together.past[name] and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(together.past[name])))
            together.observers.retract(together, name, gone)
            alone[name].retract(gone)
        (held,) = together.trajectories
        assert held.rounds == sorted({r for other in alone.values() for r in other.held})
        largest = {every: max(w.size for w in windows if w.every == every) for every in {w.every for w in windows}}
        assert room(held) == sum(largest.values())
        for name, other in alone.items():
            assert same_bits(together.observers.value(together, name, models[0]), other.value(models[0]))
            assert all(torch.equal(together.averages[name][key], value) for key, value in other.state.items())


def test_what_one_window_retracts_stays_for_the_others_and_then_nothing_is_left_of_it() -> None:
    models = trajectory(6)
    together = Together({"a": Window(3), "b": Window(6)}, models[0])
    for round in range(1, 7):
        together.observe(models[round], round)
    row = together.past["b"][5]
    together.observers.retract(together, "a", 5)
    assert sorted(together.past["a"]) == [4, 6] and same_bits(row, models[5])
    together.observers.retract(together, "b", 5)
    assert together.trajectories[0].rounds == [1, 2, 3, 4, 6] and not row.any()


def test_other_slices_and_storages_have_trajectories_of_their_own() -> None:
    w = trajectory(0)[0]
    windows: dict[str, Average] = {"a": Window(2), "b": Window(3), "host": Window(2, storage="host")}
    windows |= {"left": Window(2), "again": Window(5), "s": SWA(1), "odd": Window(2)}
    slices = {"left": [(0, 3)], "again": [(0, 3)], "odd": [(0, 1), (2, 3)]}
    together = Together(windows, w, slices)
    of = {name: past.trajectory for name, past in together.past.items()}
    server_state = {frozenset((a, b)) for a, b in itertools.combinations(of, 2) if of[a] is of[b]}
    assert server_state == {frozenset("ab"), frozenset(("left", "again"))}
    assert of["a"].part == of["host"].part == "all" and len({t.part for t in of.values()}) == 3


@pytest.mark.parametrize("order", ["before", "code"])
def test_a_window_fed_before_the_server_sees_vectors_of_its_own(order: Any) -> None:
    averages = {"fed": Window(2), "w": Window(3), "v": Window(2)}
    state = after(federation(averages=averages, broadcast=Broadcast("fed", 2, order)), 4)
    fed, w, v = (state.past[name].trajectory for name in ("fed", "w", "v"))
    assert w is v is not fed and (fed.owner, w.owner) == ("fed", "")
    assert sorted(state.past["fed"]) == [3, 4] and w.rounds == [2, 3, 4]
    assert not torch.equal(state.past["fed"][4], state.w) and torch.equal(w.place[4], state.w)


def test_a_trajectory_that_was_made_too_small_grows() -> None:
    models, past = trajectory(7), Trajectory(place_for(3, trajectory(0)[0], "host")).share()
    past.fill(range(8), models.__getitem__)
    assert all(same_bits(past[round], models[round]) for round in range(8)) and room(past.trajectory) == 9


def test_a_copy_of_what_was_seen_shares_its_models_and_nothing_with_the_first() -> None:
    models = trajectory(5)
    together = Together({"a": Window(2), "b": Window(4)}, models[0])
    together.observe(models[1], 1)
    copy = deepcopy(SimpleNamespace(averages=together.averages, past=together.past))
    together.observe(models[2], 2)
    assert copy.past["a"].trajectory is copy.past["b"].trajectory and sorted(copy.past["a"]) == [1]
    together.observers.observe(copy, models[2], 2)
    assert same_bits(copy.past["b"][2], models[2])
