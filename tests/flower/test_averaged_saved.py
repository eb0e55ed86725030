"""The state of a training with averages: saved after each round, taken up again to the byte."""

from __future__ import annotations

import json
import os
import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from support.apps import Nodes, arrays, scores, strategy, vector
from support.by_default import some
from support.by_hand import MEMORIES, STRATEGIES
from support.choices import chequered

# isort: split
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg, FedAvgM, Result

from fedsash import EMA, SWA, Broadcast, RunError, Window
from fedsash.extend import Average
from fedsash.flower import Averaged
from fedsash.flower.averaged.training_state import TrainingState
from fedsash.settings.errors import ModelError
from fedsash.vector.saved import StateError, place, saved_rounds

ROUNDS = 6
AVERAGES: dict[str, Average] = {"wima": Window(3), "lawa": Window(2, every=2), "ema": EMA(0.9), "swa": SWA(2)}
START = arrays(np.zeros(5))


class Killed(BaseException):
    """Nothing in between catches it."""


class Fragile(Nodes):
    """Nodes that are gone when a client is asked for the `fatal`-th time, to train or to evaluate."""

    def __init__(self, kind: str, fatal: int | None = None) -> None:
        super().__init__(kind)
        self.fatal, self._asked, send = fatal, 0, self.grid.send_and_receive

        def count(messages: Any, **rest: Any) -> Any:
            self._asked += 1
            if self._asked == self.fatal:
                raise Killed
            return send(messages, **rest)

        self.grid.send_and_receive = count  # type: ignore[method-assign]


def trained(kind: str, folder: Path, fatal: int | None = None, rounds: int = ROUNDS, **more: Any) -> tuple[Any, Result]:
    """A training in a new process, as far as objects go. One that is taken up begins with other random numbers."""
    random.seed(str(saved_rounds(folder)))
    averaged = Averaged(strategy(kind), **{"averages": AVERAGES, "serve": "wima", "folder": folder} | more)
    return averaged, averaged.start(Fragile(kind, fatal).grid, START, rounds, evaluate_fn=scores)


def content(averaged: Averaged, result: Result) -> list[Any]:
    """All that a training ends with, as bytes."""
    models = [*(averaged.value(name) for name in ("model", *AVERAGES)), result.arrays]
    metrics = (result.train_metrics_clientapp, result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp)
    return [*({n: a.data for n, a in model.items()} for model in models), *map(str, metrics)]


@pytest.mark.parametrize("kind, broadcast", some(chequered(STRATEGIES, [None, Broadcast("wima", 2)], of=3), *MEMORIES))
def test_killed_again_and_again_it_ends_with_the_bytes_of_a_training_without_a_stop(
    kind: str, broadcast: Broadcast | None, tmp_path: Path
) -> None:
    whole = content(*trained(kind, tmp_path / "whole", broadcast=broadcast))
    for fatal in (4, 3, 1, 5):  # counted from each beginning: in round 2 evaluating, then training, ...
        with pytest.raises(Killed):
            trained(kind, tmp_path / "again", fatal, broadcast=broadcast)
    assert content(*trained(kind, tmp_path / "again", broadcast=broadcast)) == whole


def test_killed_in_the_middle_of_saving_it_goes_on_from_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(*trained("FedAvgM", tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr("fedsash.vector.saved.json.dumps", _killing(json.dumps, at=9))
        with pytest.raises(Killed):
            trained("FedAvgM", tmp_path / "again")
    assert saved_rounds(tmp_path / "again")
    assert content(*trained("FedAvgM", tmp_path / "again")) == whole


def _killing(write: Callable[..., str], at: int) -> Callable[..., str]:
    calls = iter(range(1, 10**6))

    def killing(*given: Any, **more: Any) -> str:
        if next(calls) == at:
            raise Killed
        return write(*given, **more)

    return killing


def test_a_finished_training_is_returned_and_more_rounds_go_on_from_it(tmp_path: Path) -> None:
    whole = content(*trained("FedAdam", tmp_path / "whole", rounds=8))
    half = content(*trained("FedAdam", tmp_path / "half", rounds=5))
    assert content(*trained("FedAdam", tmp_path / "half", rounds=5)) == half
    assert content(*trained("FedAdam", tmp_path / "half", rounds=8)) == whole
    assert saved_rounds(tmp_path / "half") == [7, 8]


def test_a_second_training_in_the_same_folder_is_refused_as_long_as_the_first_goes_on(tmp_path: Path) -> None:
    """It would link the first one's models into its own windows."""

    def second(round: int, model: ArrayRecord) -> MetricRecord:
        with pytest.raises(RunError, match=f"{tmp_path} is in use by another session of this process"):
            Averaged(FedAvg(), AVERAGES, folder=tmp_path).start(Nodes().grid, START, 2)
        return scores(round, model)

    Averaged(FedAvg(), AVERAGES, folder=tmp_path).start(Nodes().grid, START, 2, evaluate_fn=second)
    Averaged(FedAvg(), AVERAGES, folder=tmp_path).start(Nodes().grid, START, 3)
    assert saved_rounds(tmp_path) == [2, 3]


def test_a_folder_that_is_a_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file, and must be a folder"):
        Averaged(FedAvg(), AVERAGES, folder=tmp_path / "file").start(Nodes().grid, START, 2)


def test_models_of_past_rounds_are_written_once_and_there_is_no_pickle(tmp_path: Path) -> None:
    trained("FedAvg", tmp_path)
    before, after = (place(tmp_path, round) for round in saved_rounds(tmp_path))
    for shared in {file.name for file in before.glob("0-past*")} & {file.name for file in after.glob("0-past*")}:
        assert (before / shared).samefile(after / shared)
    assert {file.suffix for file in after.iterdir()} == {".json", ".safetensors"}
    assert len(list(after.glob("0-past*"))) == 3  # wima: 4, 5 and 6; lawa: 4 and 6


def test_a_damaged_newest_state_is_left_for_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = content(*trained("FedYogi", tmp_path))
    (place(tmp_path, ROUNDS) / "state.safetensors").write_bytes(b"no")
    assert content(*trained("FedYogi", tmp_path)) == whole
    assert "00000006/state.safetensors is missing or damaged; using the state before it" in caplog.text


def test_if_all_states_are_damaged_it_does_not_begin_anew(tmp_path: Path) -> None:
    trained("FedAvg", tmp_path)
    for file in tmp_path.glob("*/state.json"):
        file.write_text("{}")
    with pytest.raises(StateError, match="there is no usable state"):
        trained("FedAvg", tmp_path)


@pytest.mark.parametrize(
    "kind, settings, line",
    [
        ("FedAvgM", {}, "strategy is FedAvg there and FedAvgM here"),
        ("FedAvg", {"serve": "ema"}, "serve is wima there and ema here"),
        (
            "FedAvg",
            {"averages": AVERAGES | {"wima": Window(4)}},
            r"averages.wima is .*size=3.* there and .*size=4.* here",
        ),
        ("FedAvg", {"averages": {"wima": Window(3)}}, r"averages.lawa is .* there and nothing here"),
        ("FedAvg", {"broadcast": "wima"}, r"broadcast is None there and .*Broadcast.* here"),
    ],
)
def test_the_state_of_another_training_is_refused(
    kind: str, settings: dict[str, Any], line: str, tmp_path: Path
) -> None:
    trained("FedAvg", tmp_path, rounds=2)
    with pytest.raises(RunError, match=rf"00000002 is of another training: {line}; take a new folder"):
        trained(kind, tmp_path, **settings)


def test_the_state_of_another_model_is_refused(tmp_path: Path) -> None:
    trained("FedAvg", tmp_path, rounds=1)
    other = ArrayRecord({**START, "c": START["a.weight"]})
    with pytest.raises(RunError, match=r"array c is nothing there and float64 \[3\] here"):
        Averaged(FedAvg(), AVERAGES, folder=tmp_path).start(Nodes().grid, other, 2)


class Own(FedAvgM):  # type: ignore[misc]
    """A strategy that remembers in other ways: in place, in lists, with an object, behind a name of its own."""

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__(server_learning_rate=rate, server_momentum=0.5)
        self.count, self.seen, self.spent = np.zeros(1), [], Spent()
        self.where = object()

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.count += 1
        self.seen.append((server_round, {"n": int(self.count[0])}))
        self.spent.total += 0.5
        return super().aggregate_train(server_round, replies)


class Spent:
    """An object with a state, such as Flower's privacy accountant."""

    def __init__(self) -> None:
        self.total = 0.0

    def state_dict(self) -> dict[str, object]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def test_what_a_strategy_of_ones_own_remembers_is_taken_up_and_its_settings_are_the_programs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Averaged(Own(), Window(3), folder=tmp_path).start(Nodes().grid, START, 2)
    assert "the attributes where of the strategy can't be saved" in caplog.text
    again = Own(rate=0.25)
    Averaged(again, Window(3), folder=tmp_path).start(Nodes().grid, START, 3)
    assert again.count == 3 and again.spent.total == 1.5
    assert again.seen == [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})]
    assert again.server_learning_rate == 0.25


class Corner(NamedTuple):
    x: int


Phase = IntEnum("Phase", "WARM COLD")


class Odd:
    """An object whose state is a set."""

    def state_dict(self) -> dict[str, object]:
        return {"seen": {1}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError


class Peculiar(FedAvg):  # type: ignore[misc]
    """A strategy with attributes that have no plain form, and with some that only look so."""

    def __init__(self) -> None:
        super().__init__()
        self.corner, self.shape, self.counts = Corner(0), torch.Size([0]), Counter[int]()
        self.objects, self.odd, self.several = np.array([None]), Odd(), [Spent()]
        self.phase, self.key = Phase.WARM, b""
        self.graph, self.network, self.ordered = torch.zeros(1), nn.Linear, OrderedDict[str, int]()

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.corner, self.shape = Corner(server_round), torch.Size([server_round])
        self.phase, self.key = Phase.COLD, bytes([server_round])
        self.graph = torch.zeros(1, requires_grad=True) + 1
        self.counts[server_round] += 1
        self.ordered[str(server_round)] = server_round
        return super().aggregate_train(server_round, replies)


def test_what_has_no_plain_form_is_named_and_does_not_keep_a_training_from_being_taken_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Averaged(Peculiar(), Window(3)).start(Nodes().grid, START, 3)
    Averaged(Peculiar(), Window(3), folder=tmp_path).start(Nodes().grid, START, 1)
    lines = [line for line in caplog.messages if "can't be saved" in line]
    assert lines == [
        "Averaged: the attributes corner, shape, counts, objects, odd, several, phase of the strategy can't be saved",
        "Averaged: the attributes graph of the strategy can't be saved",  # since the first round
    ]
    again = Peculiar()
    Averaged(again, Window(3), folder=tmp_path).start(Nodes().grid, START, 2)
    assert again.key == bytes([2]) and again.phase is Phase.COLD
    assert again.counts == {2: 1} and again.ordered == OrderedDict({"1": 1, "2": 2})
    again.ordered.move_to_end("1")


def test_a_model_that_is_not_finite_is_no_part_of_the_state(tmp_path: Path) -> None:
    nodes = Nodes(spoil=lambda round, node: "nan" if round == 2 else "")
    averaged = Averaged(FedAvgM(server_momentum=0.9), Window(3), folder=tmp_path)
    averaged.start(nodes.grid, START, 2)
    again = Averaged(FedAvgM(server_momentum=0.9), Window(3), folder=tmp_path)
    result = again.start(Nodes().grid, START, 4)
    assert np.isfinite(vector(result.arrays)).all()


def test_rounds_that_are_trained_again_after_a_damaged_state_leave_nothing_of_the_old_ones(tmp_path: Path) -> None:
    def progress() -> TrainingState:
        found = TrainingState({"w": Window(2)}, arrays(np.zeros(5)), tmp_path)
        found.load(tmp_path, {})
        return found

    def go_on(training: TrainingState, value: float) -> None:
        training.round += 1
        training.take(arrays(np.full(5, value)), training.round)
        training.save(tmp_path, {}, {}, {})

    training = progress()
    for value in (1.0, 2.0, 3.0):
        go_on(training, value)
    (tmp_path / "00000003" / "state.safetensors").write_bytes(b"")
    again = progress()
    assert again.round == 2
    go_on(again, 30.0)
    assert vector(progress().value("w")).tolist() == vector(again.value("w")).tolist() == [16.0] * 5


def test_a_first_model_with_an_infinite_array_is_refused_with_its_name() -> None:
    with pytest.raises(ModelError, match=r"not finite in the arrays \['b.weight'\]: keep a mask out"):
        TrainingState({"w": Window(2)}, arrays(np.array([0.0, 0, 0, 0, -np.inf])), None)


def test_models_on_the_disk_that_are_taken_up_are_the_saved_files_themselves(tmp_path: Path) -> None:
    """A copy of each would need the room of the window twice."""
    settings: dict[str, Any] = {"averages": {"w": Window(3, storage="disk")}, "serve": "w"}
    trained("FedAvg", tmp_path, rounds=3, **settings)
    averaged, _ = trained("FedAvg", tmp_path, rounds=3, **settings)
    parts = averaged._state._averages.models()
    held = {name: os.fstat(part._handle).st_ino for name, part in parts.items()}
    assert len(held) == 3
    assert held == {name: (place(tmp_path, 3) / name).stat().st_ino for name in parts}
