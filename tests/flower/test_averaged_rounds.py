"""Rounds that fail, models that are not finite, wrappers and starts of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from support.apps import Nodes, arrays, scores, strategies, strategy, vector
from support.by_default import rotated
from support.by_hand import NODES, Floats, fedavg

# isort: split
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, FedAvgM, Result

from fedsash import EMA, SWA, Broadcast, RunError, SettingError, Window
from fedsash.flower import Averaged

START = arrays(np.zeros(5))


def test_a_round_without_answers_changes_nothing_and_clients_get_the_last_model_again() -> None:
    nodes = Nodes(spoil=lambda round, node: "fails" if round in (2, 3) else "")
    averaged = Averaged(FedAvg(), {"wima": Window(3), "swa": SWA(1)})
    result = averaged.start(nodes.grid, START, 5, evaluate_fn=scores)
    models = [np.zeros(5)]
    for _ in range(3):
        models.append(fedavg(models[-1], 0))
    received = [nodes.received[round * NODES] for round in range(5)]
    assert np.allclose(received, [models[i] for i in (0, 1, 1, 1, 2)], atol=1e-12)
    assert np.allclose(vector(result.arrays), np.mean(models[1:], axis=0), atol=1e-12)
    assert np.array_equal(vector(averaged.value("swa")), vector(averaged.value("wima")))
    seen = result.evaluate_metrics_serverapp
    assert seen[1] == seen[2] == seen[3] != seen[4]


@pytest.mark.parametrize(
    "kind, broadcast", rotated(["FedAvg", "FedAvgM", "FedAdam", "FedAdagrad", "FedYogi"], [None, "wima"], turns=3)
)
def test_after_a_model_that_is_not_finite_the_training_is_as_if_its_round_had_failed(
    kind: str, broadcast: str | None
) -> None:
    """FedAdam's rate depends on the number of the round, so the other run has that round, too, without answers."""
    found = []
    for how in ("nan", "fails"):
        nodes = Nodes(spoil=lambda round, node, how=how: how if round == 3 and (how == "fails" or node == 2) else "")
        averaged = Averaged(strategy(kind), {"wima": Window(3), "ema": EMA(0.9)}, "wima", broadcast)
        result = averaged.start(nodes.grid, START, 6, evaluate_fn=scores)
        found.append([*nodes.received, *(vector(averaged.value(name)) for name in ("model", "wima", "ema"))])
        assert all(np.isfinite(row).all() for row in nodes.received)
        assert all(np.isfinite(row["z"]).all() for row in result.evaluate_metrics_serverapp.values())
    assert np.allclose(*found, rtol=1e-12, atol=1e-12)


def test_without_a_good_round_the_result_has_the_first_model() -> None:
    nodes = Nodes(spoil=lambda round, node: "nan")
    result = Averaged(FedAvg(), {"wima": Window(2)}, "wima").start(nodes.grid, START, 2)
    assert np.array_equal(vector(result.arrays), vector(START))


def test_a_wrapper_outside_is_refused_before_a_client_is_asked() -> None:
    for kind in (name for name in strategies.__all__ if name.startswith("DifferentialPrivacy")):
        nodes, averaged = Nodes(kind), Averaged(FedAvg(), Window(3))
        norm = {"clipping_norm": 1.0} if "Fixed" in kind else {}
        wrapper = getattr(strategies, kind)(averaged, noise_multiplier=0.0, num_sampled_clients=NODES, **norm)
        with pytest.raises(RunError, match=r"^Averaged: it must be the outermost strategy, .*: Averaged\(Wrapper"):
            wrapper.start(nodes.grid, START, 2)
        assert not nodes.received
        with pytest.raises(SettingError, match="must be the outermost strategy"):
            Averaged(wrapper, Window(3))


class Recording(FedAvg):  # type: ignore[misc]
    """A strategy with a `start` of its own, as those have that save models or log metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[Floats] = []

    def start(self, grid: Any, initial_arrays: ArrayRecord, **rest: Any) -> Result:
        result = super().start(grid, initial_arrays, **rest)
        self.keep(result.arrays)
        return result

    def keep(self, model: ArrayRecord) -> None:
        self.saved.append(vector(model))


class OwnLoop(Recording):
    """It has a loop of its own, too, without Flower's."""

    def start(self, grid: Any, initial_arrays: ArrayRecord, num_rounds: int = 3, **rest: Any) -> Result:
        model = initial_arrays
        for round in range(1, num_rounds + 1):
            replies = grid.send_and_receive(self.configure_train(round, model, ConfigRecord(), grid))
            model, _ = self.aggregate_train(round, replies)
            self.keep(model)
        return Result(arrays=model)


@pytest.mark.parametrize("own", [Recording, OwnLoop])
def test_a_start_of_the_users_own_runs_and_sees_the_average(own: type[Recording]) -> None:
    mine, plain = own(), Averaged(FedAvg(), Window(3))
    averaged = Averaged(mine, Window(3))
    ours, expected = averaged.start(Nodes().grid, START, 4), plain.start(Nodes().grid, START, 4)
    assert np.allclose(vector(ours.arrays), vector(expected.arrays), rtol=1e-12)
    assert np.array_equal(mine.saved[-1], vector(ours.arrays))
    assert "configure_train" not in vars(mine)


class InPlace(FedAvg):  # type: ignore[misc]
    """A strategy that gives the same record each time."""

    def __init__(self) -> None:
        super().__init__()
        self.record = ArrayRecord()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        model, metrics = super().aggregate_train(server_round, replies)
        for name, array in model.items():
            self.record[name] = array
        return self.record, metrics


def test_the_last_good_model_stays_what_it_was_if_a_strategy_changes_its_record() -> None:
    nodes = Nodes(spoil=lambda round, node: "nan" if round == 2 else "")
    Averaged(InPlace(), Window(2)).start(nodes.grid, START, 3)
    assert np.allclose(nodes.received[-1], fedavg(np.zeros(5), 0), rtol=1e-12)


def test_an_average_that_has_not_begun_is_the_model_and_is_not_evaluated_beside_it() -> None:
    averaged = Averaged(FedAvg(), {"late": Window(3, start=3), "ema": EMA(0.5)}, "late")
    result = averaged.start(Nodes().grid, START, 3, evaluate_fn=scores)
    seen = result.evaluate_metrics_serverapp
    assert set(seen[0]) == {"z"} and set(seen[2]) == {"z", "ema/z"} and set(seen[3]) == {"z", "model/z", "ema/z"}


def test_the_metrics_of_evaluate_fn_may_be_missing() -> None:
    averaged = Averaged(FedAvg(), Window(3))
    result = averaged.start(Nodes().grid, START, 2, evaluate_fn=lambda round, model: None)
    assert result.evaluate_metrics_serverapp == {}


def test_a_budget_of_noise_is_spent_inside() -> None:
    wrapper = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, NODES)
    result = Averaged(wrapper, Window(3)).start(Nodes().grid, START, 3)
    assert np.isfinite(vector(result.arrays)).all()


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"strategy": "FedAvg"}, "Averaged.strategy = 'FedAvg': must be a strategy of flwr.serverapp.strategy"),
        ({"averages": {}}, "Averaged.averages = {}: must be at least one average"),
        ({"averages": {"w": 3}}, "Averaged.averages = 3: must be an average"),
        ({"averages": {"model": Window(3)}}, "averages = 'model': must be a name"),
        ({"serve": "ema"}, r"Averaged.serve = 'ema': must be one of \['w', 'model'\]"),
        ({"broadcast": "ema"}, "Broadcast.average = 'ema': must be an average; there is w"),
        ({"broadcast": Broadcast("w", order="before")}, "Broadcast.order = 'before': must be 'after'"),
        ({"broadcast": 3}, "Averaged.broadcast = 3: must be None, the name of an average or a Broadcast"),
        ({"broadcast": Broadcast("w", start="auto")}, "Broadcast.start = 'auto': must be a round, with one average"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError, match=f"^{line}"):
        Averaged(**{"strategy": FedAvgM(), "averages": {"w": Window(3)}} | settings)


def test_a_value_is_asked_for_by_a_name_that_there_is_and_once_the_training_has_begun() -> None:
    averaged = Averaged(FedAvg(), Window(3))
    with pytest.raises(SettingError, match=r"^Averaged.value: name = 'ema': must be one of \['average', 'model'\]"):
        averaged.value("ema")
    with pytest.raises(RunError, match="there is none before the training has begun"):
        averaged.value("average")


def test_what_evaluate_fn_writes_for_a_round_is_the_served_model_in_the_end() -> None:
    """It is called for each model with the same number of the round, and the served one is the last of these."""
    written: dict[int, Any] = {}

    def write(round: int, model: ArrayRecord) -> MetricRecord:
        written[round] = vector(model)
        return scores(round, model)

    averaged = Averaged(FedAvg(), {"wima": Window(3), "ema": EMA(0.5)})
    result = averaged.start(Nodes().grid, START, 5, evaluate_fn=write)
    assert np.array_equal(written[5], vector(result.arrays))
    assert set(result.evaluate_metrics_serverapp[5]) == {"z", "model/z", "ema/z"}


def test_a_metric_with_the_name_of_another_models_is_refused() -> None:
    averaged = Averaged(FedAvg(), {"wima": Window(3)})
    with pytest.raises(RunError, match="evaluate_fn gives 'model/z', which is the metric of another model"):
        averaged.start(
            Nodes().grid, START, 3, evaluate_fn=lambda round, model: MetricRecord({"z": 1.0, "model/z": 2.0})
        )
