"""The models of past rounds on disk: a file each, for all windows of a part; runs, forks and averages of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsash import EMA, Broadcast, Checkpoint, Fork, Window, resume, run
from fedsash.averages import Average, Pieces, Retention
from fedsash.runs.checkpoints import load, save
from fedsash.vector.arrays import Vectors
from fedsash.vector.saved import StateError
from support.by_default import some
from support.worlds import after, federation, identical, trained

QUIET: dict[str, Any] = {"progress": False}


@dataclass(frozen=True)
class Last(Average):
    """The mean of the last model and the first one: an average of one's own whose tensor is called "models"."""

    def init(self, w: Tensor) -> Vectors:
        return {"models": torch.zeros(2, len(w), dtype=w.dtype), "seen": torch.tensor(0)}

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["models"][min(int(state["seen"]), 1)] = w.whole()
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return state["models"].mean(0)


@dataclass(frozen=True)
class Before(Average):
    """The model before the last one: the past of an average of one's own that is no window."""

    def init(self, w: Tensor) -> Vectors:
        return {"two": torch.zeros(2, dtype=torch.int64), "seen": torch.tensor(0)}

    def retention(self) -> Retention:
        return Retention(2)

    def needs(self, state: Vectors) -> list[int]:
        return [round for round in state["two"].tolist() if round]

    def take(self, state: Vectors, w: Pieces, round: int, past: Mapping[int, Tensor]) -> None:
        state["two"] = torch.tensor([int(state["two"][1]), round])
        state["seen"] += 1

    def mean(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        return past[min(past)].clone()


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("past-*"))


def test_an_average_of_ones_own_may_call_a_tensor_models(tmp_path: Path) -> None:
    world = federation(averages={"own": Last()})
    first = run(world, 3, out=tmp_path, checkpoint=Checkpoint(1), **QUIET).state
    loaded = load(tmp_path / "state" / "00000003", world.start())
    assert torch.equal(loaded.averages["own"]["models"], first.averages["own"]["models"])
    assert int(loaded.averages["own"]["seen"]) == 3 and not files(tmp_path / "state" / "00000003")


def test_an_average_of_ones_own_may_need_the_past(tmp_path: Path) -> None:
    world = federation(averages={"own": Before(), "w": Window(3)})
    state = trained(world, 4, tmp_path)
    value = world.models(state)["own"]
    assert torch.equal(value, state.past["w"][3]) and state.past["own"].trajectory is state.past["w"].trajectory
    loaded = load(tmp_path / "00000004", world.start())
    assert identical(loaded, state) and torch.equal(world.models(loaded)["own"], value)


@pytest.mark.full
def test_windows_of_5_to_200_are_200_files(tmp_path: Path) -> None:
    sizes = (5, 10, 50, 100, 200)
    world = federation(averages={f"w{size}": Window(size) for size in sizes})
    state = world.start()
    for round in range(1, 251):
        world.observers.observe(state, torch.full_like(state.w, round), round)
    place = save(state, tmp_path)
    assert files(place) == [f"past-all-{round:08d}.safetensors" for round in range(51, 251)]
    loaded = load(place, world.start())
    assert identical(loaded, state) and loaded.past["w5"].trajectory is loaded.past["w200"].trajectory


def test_windows_of_one_part_share_files_whatever_their_storage(tmp_path: Path) -> None:
    averages = {"a": Window(2, storage="disk"), "b": Window(3, storage="host"), "c": Window(2, part="classifier")}
    world = federation(averages=averages)
    state = after(world, 3)
    place = save(state, tmp_path)
    part = state.past["c"].trajectory.part
    expected = [f"past-all-0000000{i}" for i in (1, 2, 3)] + [f"past-{part}-0000000{i}" for i in (2, 3)]
    assert files(place) == sorted(f"{name}.safetensors" for name in expected)
    assert identical(load(place, world.start()), state)


def test_only_the_models_that_are_still_needed_are_loaded(tmp_path: Path) -> None:
    trained(federation(averages={"long": Window(6), "short": Window(2), "e": EMA(0.5)}), 6, tmp_path)
    here = federation(averages={"short": Window(2), "new": Window(4)})
    loaded = load(tmp_path / "00000006", here.start())
    assert loaded.past["short"].trajectory.rounds == [5, 6] and not loaded.past["new"]
    assert files(save(after(here, 1, loaded), tmp_path / "fork")) == [
        f"past-all-0000000{round}.safetensors" for round in (6, 7)
    ]


def test_a_window_of_other_parameters_is_refused_also_where_they_are_as_many(tmp_path: Path) -> None:
    trained(federation(averages={"w": Window(2, part=("0.weight",))}), 2, tmp_path)
    start = federation(averages={"w": Window(2, part=("0.bias", "3.weight"))}).start()
    with pytest.raises(StateError, match=r"averages/w is models of \w+ there and models of \w+ here"):
        load(tmp_path / "00000002", start)
    assert not start.past["w"]


@pytest.mark.parametrize("order", some(["before", "code"], "code"))
def test_a_run_that_broadcasts_before_the_server_is_resumed_and_forked_with_the_same_bytes(
    order: Any, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"averages": {"fed": Window(3), "w": Window(3)}, "broadcast": Broadcast("fed", 2, order)}
    whole = run(federation(**settings), 6, out=tmp_path / "whole", checkpoint=Checkpoint(2, keep=(4,)), **QUIET)
    run(federation(**settings), 6, out=tmp_path / "a", checkpoint=Checkpoint(2), until=4, **QUIET)
    resumed = resume(federation(**settings), 6, tmp_path / "a", checkpoint=Checkpoint(2), **QUIET)
    forked = run(federation(**settings), 6, fork=Fork(tmp_path / "whole", 4), **QUIET)
    saved = tmp_path / "whole" / "state" / "00000006"
    assert files(saved) == [f"past-{part}-0000000{i}.safetensors" for part in ("all", "all.fed") for i in (4, 5, 6)]
    for other in (resumed, forked):
        assert torch.equal(other.state.w, whole.state.w)
        for name, past in whole.state.past.items():
            assert all(torch.equal(other.state.past[name][round], w) for round, w in past.items())


def test_what_a_fed_window_alone_has_seen_stays_its_own_in_a_fork_that_broadcasts_no_more(tmp_path: Path) -> None:
    averages = {"fed": Window(3), "w": Window(3)}
    source = run(
        federation(averages=averages, broadcast=Broadcast("fed", 2, "before")), 4, out=tmp_path / "source", **QUIET
    ).state
    assert not torch.equal(source.past["fed"][4], source.past["w"][4])
    world = federation(averages=averages)
    loaded = load(tmp_path / "source" / "state" / "00000004", world.start())
    assert identical(loaded, source)
    settings: dict[str, Any] = {"checkpoint": Checkpoint(1), "fork": Fork(tmp_path / "source", 4), **QUIET}
    fork = run(world, 5, out=tmp_path / "fork", **settings).state
    assert torch.equal(fork.past["fed"][5], fork.past["w"][5]), "from here on it sees what the others see"
    assert torch.equal(fork.past["fed"][4], source.past["fed"][4])
    again = load(tmp_path / "fork" / "state" / "00000005", federation(averages=averages).start())
    assert identical(again, fork)
