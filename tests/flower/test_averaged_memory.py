"""What a strategy remembers beside its model: in the configs that Flower passes on, in settings, in an accountant."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from support.apps import Nodes, arrays, vector

# isort: split
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from fedsash import RunError, Window
from fedsash.flower import Averaged

START = arrays(np.zeros(5))


class Decays(FedAvg):  # type: ignore[misc]
    """A rate that falls in the config, which Flower passes on from round to round, and a text of bytes there."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[float] = []

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        if server_round % 2 == 0:
            config["lr"] *= 0.5
            config["seen"] = [*config.get("seen", []), bytes([server_round])]
        self.sent.append(config["lr"])
        return super().configure_train(server_round, arrays, config, grid)


def test_what_a_strategy_writes_into_its_config_is_taken_up(tmp_path: Path) -> None:
    rates, records = [], []
    for rounds in (3, 5, 8):  # each in a new process, as far as objects go
        strategy, config = Decays(), ConfigRecord({"lr": 0.8, "momentum": 0.9})
        Averaged(strategy, Window(3), folder=tmp_path).start(Nodes().grid, START, rounds, train_config=config)
        rates, records = strategy.sent, [*records, dict(config)]
    assert rates == [0.8, 0.4, 0.4, 0.2, 0.2, 0.1, 0.1, 0.05]
    assert [each["lr"] for each in records] == [0.4, 0.2, 0.05]
    assert records[-1]["seen"] == [b"\x02", b"\x04", b"\x06", b"\x08"] and records[-1]["momentum"] == 0.9


def test_the_programs_config_holds_where_the_training_has_not_changed_it(tmp_path: Path) -> None:
    for momentum in (0.9, 0.5):
        config = ConfigRecord({"lr": 0.8, "momentum": momentum})
        averaged = Averaged(Decays(), Window(3), folder=tmp_path)
        averaged.start(Nodes().grid, START, 2 if momentum == 0.9 else 4, train_config=config)
    assert dict(config)["momentum"] == 0.5 and dict(config)["lr"] == 0.2


class Late(FedAvg):  # type: ignore[misc]
    """It makes its momentum in its first round, of which a value is not a number, and has events meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[int, object] = {}

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        self.events[server_round] = object()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        model, metrics = super().aggregate_train(server_round, replies)
        del self.events[server_round]
        step = vector(model) * (np.nan if server_round == 1 else 1)
        self.velocity = 0.5 * getattr(self, "velocity", np.zeros(5)) + step
        return arrays(self.velocity), metrics


def test_what_a_strategy_makes_in_a_round_that_is_left_out_is_gone_and_the_rest_stays() -> None:
    strategy = Late()
    Averaged(strategy, Window(3)).start(Nodes().grid, START, 1)
    assert not hasattr(strategy, "velocity") and strategy.events == {}
    Averaged(strategy, Window(3)).start(Nodes().grid, START, 3)
    assert np.isfinite(strategy.velocity).all()


class Optimised(FedAvg):  # type: ignore[misc]
    """Its server steps by optimisers that hold its tensors; of some rounds the model is not finite."""

    def __init__(self, bad: Collection[int] = ()) -> None:
        super().__init__()
        self.bad = bad
        self.w = nn.Parameter(torch.zeros(5, dtype=torch.float64))
        self.parts = [torch.zeros(2, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)]
        self.best = self.w
        optimisers = [torch.optim.SGD([self.w], 0.5), torch.optim.SGD(self.parts, 0.5)]
        self.step = lambda: [optimiser.step() for optimiser in optimisers]

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        _, metrics = super().aggregate_train(server_round, replies)
        self.best = self.w.detach().clone()
        self.w.grad = torch.full_like(self.w, server_round)
        for part in self.parts:
            part.grad = torch.full_like(part, server_round)
        self.step()
        w = self.w + torch.cat(self.parts)
        if server_round in self.bad:
            self.best = self.w
            w = w * torch.nan
        return arrays(w.detach().numpy()), metrics


@pytest.mark.parametrize("stop", [True, False])
def test_a_servers_optimiser_goes_on_moving_the_tensors_that_it_holds(stop: bool, tmp_path: Path) -> None:
    Averaged(Optimised(), Window(3), folder=tmp_path).start(Nodes().grid, START, 2)
    strategy = Optimised(bad=[3])
    Averaged(strategy, Window(3), folder=tmp_path).start(Nodes().grid, START, 3)
    if stop:
        strategy = Optimised()
    Averaged(strategy, Window(3), folder=tmp_path).start(Nodes().grid, START, 4)
    assert strategy.w.tolist() == torch.cat(strategy.parts).tolist() == [-3.5] * 5  # -(1 + 2 + 4) / 2
    assert strategy.best.tolist() == [-1.5] * 5


class Lazy(FedAvg):  # type: ignore[misc]
    """It makes its optimiser in its first round, of which the model may not be finite."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad = bad
        self.optimiser: torch.optim.SGD | None = None

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        model, metrics = super().aggregate_train(server_round, replies)
        if self.optimiser is None:
            self.optimiser = torch.optim.SGD([torch.zeros(1)], momentum=0.9)
        return arrays(vector(model) * (np.nan if self.bad and server_round == 1 else 1)), metrics


def test_an_optimiser_that_a_round_makes_is_gone_if_it_is_left_out_and_missed_where_it_is_taken_up(
    tmp_path: Path,
) -> None:
    strategy = Lazy(bad=True)
    Averaged(strategy, Window(3), folder=tmp_path).start(Nodes().grid, START, 1)
    assert strategy.optimiser is None
    Averaged(strategy, Window(3), folder=tmp_path).start(Nodes().grid, START, 2)
    line = r"Lazy\.optimiser is an object's state, and here it is None: make the object in Lazy\.__init__$"
    with pytest.raises(RunError, match=line):
        Averaged(Lazy(bad=False), Window(3), folder=tmp_path).start(Nodes().grid, START, 3)


class Best(FedAvg):  # type: ignore[misc]
    """It remembers the first of its rounds, and has weights that its program sets."""

    def __init__(self, weights: list[int] | None = None) -> None:
        super().__init__()
        self.best, self.weights = 0.1, np.array(weights or [1, 2])

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.best = max(self.best, 0.9)
        return super().aggregate_train(server_round, replies)


def test_what_was_learnt_is_no_setting_for_a_second_start_of_the_same_object(tmp_path: Path) -> None:
    averaged = Averaged(Best(), Window(3), folder=tmp_path)
    averaged.start(Nodes().grid, START, 2)
    averaged.start(Nodes().grid, START, 4)
    again = Best()
    again.aggregate_train = FedAvg.aggregate_train.__get__(again)  # type: ignore[method-assign]
    Averaged(again, Window(3), folder=tmp_path).start(Nodes().grid, START, 6)
    assert again.best == 0.9


def test_arrays_that_a_training_has_not_changed_are_the_programs(tmp_path: Path) -> None:
    Averaged(Best(), Window(3), folder=tmp_path).start(Nodes().grid, START, 2)
    again = Best([30, 40])
    Averaged(again, Window(3), folder=tmp_path).start(Nodes().grid, START, 3)
    assert again.weights.tolist() == [30, 40]


class Accountant:
    """Counts releases, as Flower's accountants do."""

    def __init__(self) -> None:
        self.releases = 0

    def get_privacy_spent(self) -> int:
        return self.releases

    def state_dict(self) -> dict[str, Any]:
        return {"releases": self.releases}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.releases = state["releases"]


class Private(FedAvg):  # type: ignore[misc]
    """Releases a model each round, which overflows in rounds 2 and 3."""

    def __init__(self) -> None:
        super().__init__()
        self.accountant, self.steps = Accountant(), 0

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.accountant.releases += 1
        self.steps += 1
        model, metrics = super().aggregate_train(server_round, replies)
        return arrays(vector(model) * (np.nan if server_round in (2, 3) else 1)), metrics


def test_a_release_that_is_not_finite_stays_counted(tmp_path: Path) -> None:
    strategy = Private()
    Averaged(strategy, Window(3), folder=tmp_path).start(Nodes().grid, START, 5)
    assert (strategy.accountant.releases, strategy.steps) == (5, 3)
    again = Private()
    Averaged(again, Window(3), folder=tmp_path).start(Nodes().grid, START, 6)
    assert (again.accountant.releases, again.steps) == (6, 4)


class Counter:
    """An object that is called, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls


class Calling(FedAvg):  # type: ignore[misc]
    """A strategy with things that can be called, and a number that is no part of its `__dict__`."""

    __slots__ = ("rounds",)

    def __init__(self) -> None:
        super().__init__()
        self.sum, self.first, self.half, self.kind = np.add, itemgetter(0), partial(np.multiply, 0.5), Counter
        self.method, self.cached, self.next = self.summary, lru_cache(print), Counter()
        self.rounds = 0

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.rounds += 1
        return super().aggregate_train(server_round, replies)


def test_an_object_that_is_called_and_remembers_is_named_and_functions_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Averaged(Calling(), Window(3), folder=tmp_path).start(Nodes().grid, START, 1)
    assert "the attributes next of the strategy can't be saved" in caplog.text


def test_attributes_in_slots_are_taken_up(tmp_path: Path) -> None:
    Averaged(Calling(), Window(3), folder=tmp_path).start(Nodes().grid, START, 2)
    again = Calling()
    Averaged(again, Window(3), folder=tmp_path).start(Nodes().grid, START, 3)
    assert again.rounds == 3


def test_methods_that_a_user_has_set_on_the_object_stay_there() -> None:
    strategy, calls = FedAvg(), []
    own = strategy.configure_train

    def mine(*given: Any) -> Any:
        calls.append(1)
        return own(*given)

    strategy.configure_train = mine
    averaged = Averaged(strategy, Window(3))
    averaged.start(Nodes().grid, START, 2)
    averaged.start(Nodes().grid, START, 2)
    assert len(calls) == 4 and strategy.configure_train is mine


@pytest.mark.parametrize(
    "kind, values",
    [
        (np.int64, [2**63 - 1, -(2**63), 2**62]),
        (np.uint64, [2**64 - 1, 0, 2**63]),
        (np.int64, [2**53 + 1, 0, -(2**53) - 1]),
    ],
)
def test_large_whole_numbers_stay_in_range_and_those_of_the_model_are_kept(kind: Any, values: list[int]) -> None:
    from fedsash.flower.averaged.arrays import ArrayLayout

    first = ArrayRecord({"w": Array(np.zeros(1)), "n": Array(np.array(values, kind))})
    layout = ArrayLayout(first)
    tensors = layout.tensors(first)
    assert layout.record(tensors, first)["n"].numpy().tolist() == values
    averaged = layout.record(tensors)["n"].numpy()
    np.testing.assert_allclose(averaged.astype(float), np.array(values, float), rtol=1e-15)
    assert averaged.dtype == kind
