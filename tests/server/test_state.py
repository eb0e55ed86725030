from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.averages import EMA, SWA, Window
from fedsash.client.store import ClientStore
from fedsash.evaluation import Evaluation
from fedsash.methods import FedAvg, Scaffold
from fedsash.methods.server_optimisers import FedAdagrad, FedAdam, FedYogi, ServerSGD
from fedsash.runs.checkpoints import load, load_newest, load_run, save
from fedsash.runs.tally import Best, Tally
from fedsash.server.state import State
from fedsash.vector.saved import StateError, cut, saved_rounds
from support.by_default import some
from support.worlds import after, best, bits, data, federation, identical, learned, listing, mlp, record, trained

no_deadline = settings(deadline=None, max_examples=50)

CHOSEN = Evaluation(best_on="test")
"""A best model is kept of each name."""

KINDS: dict[str, dict[str, Any]] = {
    "nothing but the model": {},
    "SCAFFOLD": {"method": Scaffold()},
    "momentum": {"server": ServerSGD(momentum=0.9)},
    "FedAdagrad": {"server": FedAdagrad()},
    "FedAdam": {"server": FedAdam(bias_correction="keras")},
    "FedYogi": {"server": FedYogi()},
    "window on the device": {"averages": {"w": Window(3, storage="device")}},
    "window in host memory": {"averages": {"w": Window(3, storage="host")}},
    "window on disk": {"averages": {"w": Window(3, storage="disk")}},
    "window not full yet": {"averages": {"w": Window(9, every=2, start=3)}},
    "window of the classifier": {"averages": {"w": Window(2, part="classifier")}},
    "EMA": {"averages": {"e": EMA(0.9), "zero": EMA(0.9, start="zero")}},
    "SWA": {"averages": {"s": SWA(2, cycle=2)}},
    "everything": {
        "method": Scaffold("I"),
        "server": FedAdam(),
        "averages": {"w-3": Window(3), "long": Window(4, every=2), "e": EMA(0.5), "s-1": SWA(2)},
    },
}


SHOWN = ("FedAdam", "window on disk", "everything")
"""Kinds that are tried by default; `everything` has client state, moments and all averages."""

# What is saved comes back.


@pytest.mark.parametrize("kind", some(KINDS, *SHOWN))
def test_every_kind_of_state_comes_back_bitwise_and_trains_on_alike(kind: str, tmp_path: Path) -> None:
    world = federation(**KINDS[kind], evaluation=CHOSEN)
    state = after(world, 5)
    state = learned(world, state)
    told = Tally(best(world, state), samples=123, seconds=0.1 + 0.2, training_seconds=1 / 3, forked=2)
    assert told.best.keys() == world.models(state).keys()
    expected = record(state)
    loaded, tally = load_run(save(state, tmp_path, tally=told), world.start(tmp_path))
    assert identical(loaded, expected) and identical(tally, told)
    assert (tally.seconds, tally.training_seconds) == (0.1 + 0.2, 1 / 3), "which no equality compares"
    assert identical(after(world, 3, loaded), after(world, 3, state))


def test_float32_stays_float32(tmp_path: Path) -> None:
    world = federation(model=mlp().float(), averages={"w": Window(2), "e": EMA(0.9)})
    state = after(world, 3)
    loaded = load(save(state, tmp_path), world.start())
    assert loaded.w.dtype == loaded.past["w"][3].dtype == torch.float32
    assert identical(loaded, state)


any_floats = st.lists(st.floats(width=64), min_size=1, max_size=5)


@no_deadline
@given(
    w=any_floats,
    c=any_floats,
    value=st.floats(allow_nan=False),
    seconds=st.floats(0, 1e9),
    samples=st.integers(0, 2**62),
)
def test_any_numbers_come_back_bitwise(
    w: list[float],
    c: list[float],
    value: float,
    seconds: float,
    samples: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def state(w: list[float], c: list[float]) -> State:
        vector, client_state = torch.tensor(w, dtype=torch.float64), torch.tensor([c], dtype=torch.float64)
        store = ClientStore({"c": client_state}, torch.tensor([0]))
        return State(0, vector, {}, {"c": client_state[0].clone()}, store, {})

    full = state(w, c)
    full.round = 7
    full.last[0] = 5
    told = Tally({"model": Best(value, "held_out/rmse", 3, -full.w)}, samples=samples, seconds=seconds)
    empty = state([0.0] * len(w), [0.0] * len(c))
    loaded, tally = load_run(save(full, tmp_path_factory.mktemp("state"), tally=told), empty)
    assert identical(loaded, full) and identical(tally, told) and tally.seconds == seconds


def test_a_state_is_safetensors_and_json_and_readable_by_those_who_may_read_the_folder(tmp_path: Path) -> None:
    from safetensors import safe_open

    place = save(after(federation(**KINDS["everything"]), 3), tmp_path)
    for path in place.iterdir():
        assert path.stat().st_mode & 0o666 == place.stat().st_mode & 0o666
        if path.name == "state.json":
            json.loads(path.read_text())
        else:
            assert path.suffix == ".safetensors"
            with safe_open(path, "pt") as file:
                assert list(file.keys())


def test_what_was_loaded_does_not_depend_on_the_files_any_more(tmp_path: Path) -> None:
    world = federation(**KINDS["everything"])
    state = trained(world, 4, tmp_path, every=4)
    loaded = load(tmp_path / "00000004", world.start())
    for path in (tmp_path / "00000004").iterdir():
        os.truncate(path, 0)
    assert identical(loaded, state)


# Which files there are.


def test_a_windows_models_are_written_once_and_linked_from_then_on(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(3)})
    state = after(world, 3)
    first = save(state, tmp_path)
    written = (first / "past-all-00000003.safetensors").stat()
    second = save(after(world, 2, state), tmp_path)
    assert sorted(path.name for path in second.glob("past-*")) == [
        f"past-all-0000000{round}.safetensors" for round in (3, 4, 5)
    ]
    linked = (second / "past-all-00000003.safetensors").stat()
    assert (linked.st_ino, linked.st_mtime_ns, linked.st_nlink) == (written.st_ino, written.st_mtime_ns, 2)
    assert all((second / f"past-all-0000000{round}.safetensors").stat().st_nlink == 1 for round in (4, 5))


def test_a_window_whose_state_before_lost_a_file_is_written_again(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(4)})
    state = trained(world, 2, tmp_path)
    (tmp_path / "00000002" / "past-all-00000002.safetensors").unlink()
    state = after(world, 1, state)
    assert identical(load(save(state, tmp_path), world.start()), state)


def test_a_retracted_model_is_in_no_later_state(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(4)})
    state = trained(world, 2, tmp_path)
    world.observers.retract(state, "w", 2)
    state = after(world, 1, state)
    place = save(state, tmp_path)
    assert sorted(path.name for path in place.glob("past-*")) == [f"past-all-0000000{i}.safetensors" for i in (1, 3)]
    assert identical(load(place, world.start()), state)


def test_the_last_two_states_and_those_to_keep_stay(tmp_path: Path) -> None:
    trained(federation(averages={"w": Window(2)}), 12, tmp_path, keep=(4, 5, 12))
    assert saved_rounds(tmp_path) == [4, 10, 12]
    assert listing(tmp_path)[0] == "00000004" and not list(tmp_path.glob(".*"))


def test_cutting_drops_later_states_and_what_was_half_written(tmp_path: Path) -> None:
    trained(federation(), 6, tmp_path, keep=(2, 4, 6))
    (tmp_path / ".00000008.tmp").mkdir()
    (tmp_path / ".00000008.tmp" / "state.safetensors").write_bytes(b"half")
    cut(tmp_path, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002", "00000004"]
    cut(tmp_path / "nowhere", 4)


def test_a_state_can_be_saved_again(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(2)})
    state = trained(world, 4, tmp_path)
    save(state, tmp_path)
    assert saved_rounds(tmp_path) == [2, 4]
    assert identical(load(tmp_path / "00000004", world.start()), state)


# States of other experiments.

HERE: dict[str, Any] = {"method": Scaffold(), "server": FedAdam(), "averages": {"w": Window(2)}}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a larger model": ({"model": torch.nn.Linear(4, 3).double()}, "w is .*67.* there and .*15.* here"),
    "float32": ({"model": mlp().float()}, "w is torch.float64 .* there and torch.float32"),
    "another server": ({"server": ServerSGD()}, "optimiser/m is torch.float64 .* there and missing here"),
    "a server that remembers more": ({"server": FedAdam(bias_correction="keras")}, "optimiser/steps is missing there"),
    "another method": ({"method": FedAvg()}, "(server_state|client_state)/c is .* there and missing here"),
    "other clients": ({"data": data((20, 20))}, "client_state/c is .*6, 67.* there and .*2, 67.* here"),
    "another window": ({"averages": {"w": Window(3)}}, r"averages/w/rounds is .*\[2\] there and .*\[3\] here"),
    "a window of a part": (
        {"averages": {"w": Window(2, part="classifier")}},
        "averages/w is models of all there and models of .* here",
    ),
    "SWA under the window's name": ({"averages": {"w": SWA(1)}}, "averages/w/.* is missing"),
    "EMA under the window's name": ({"averages": {"w": EMA(0.5)}}, "averages/w/.* is missing"),
}


@pytest.mark.parametrize("other", some(OTHERS, *list(OTHERS)[::4]))
def test_a_state_of_another_experiment_is_refused_in_one_line(other: str, tmp_path: Path) -> None:
    different, line = OTHERS[other]
    trained(federation(**HERE), 2, tmp_path)
    settings = HERE | different | ({"sampling": _all_clients()} if "data" in different else {})
    start = federation(**settings).start()
    before = record(start)
    with pytest.raises(StateError, match=line) as caught:
        load_newest(tmp_path, start)
    assert str(caught.value).startswith(f"{tmp_path / '00000002'} is of another experiment: ")
    assert "\n" not in str(caught.value)
    assert identical(start, before)


def _all_clients() -> Any:
    from fedsash.methods.sampling import Uniform

    return Uniform(2)


def test_averages_may_differ(tmp_path: Path) -> None:
    there = federation(averages={"both": Window(2), "old": EMA(0.9)}, evaluation=CHOSEN)
    state = trained(there, 2, tmp_path)
    here = federation(averages={"both": Window(2), "new": Window(3)}, evaluation=CHOSEN)
    loaded, tally, notes = load_newest(tmp_path, here.start())
    assert not notes and loaded.averages.keys() == {"both", "new"}
    assert {round: bits(w) for round, w in loaded.past["both"].items()} == {
        round: bits(w) for round, w in state.past["both"].items()
    }
    assert here.observers.count(loaded, "new") == 0 == len(loaded.past["new"])
    assert tally.best.keys() == {"model", "both"}
