"""`Averaged` at its edges: arrays that are no weights, and arguments as people give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm

from fedsash.averages import EMA, Window
from fedsash.flower import Averaged
from fedsash.settings.errors import ModelError, SettingError
from fedsash.testing.grid import InProcessGrid

ROUNDS = 4
app = ClientApp()


@app.train()  # type: ignore[misc, untyped-decorator]
def train(message: Message, context: Any) -> Message:
    """Each round adds 1 to all numbers, and turns unit vectors."""
    moved = {name: Array(_moved(name, array.numpy())) for name, array in message.content["arrays"].items()}
    content = {"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)


def _moved(name: str, array: Any) -> Any:
    return np.roll(array, 1) if name.endswith(("_u", "_v")) else array + np.ones_like(array)


def grid() -> InProcessGrid:
    return InProcessGrid(app, {100 + i: {"partition-id": i} for i in range(3)})


def averaged(first: Mapping[str, Any], **settings: Any) -> Averaged:
    strategy = Averaged(FedAvg(fraction_evaluate=0.0), {"w": Window(ROUNDS), "ema": EMA(0.5)}, **settings)
    strategy.start(grid(), ArrayRecord({name: Array(np.asarray(value)) for name, value in first.items()}), ROUNDS)
    return strategy


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, spectral_norm], ids=["parametrization", "hook"])
def test_spectral_norms_unit_vectors_are_the_latest_models(norm: Any) -> None:
    torch.manual_seed(0)
    first = nn.Sequential(norm(nn.Linear(6, 4)), nn.Linear(4, 2)).state_dict()
    strategy = averaged({name: tensor.numpy() for name, tensor in first.items()})
    model, mean = (strategy.value(name).to_torch_state_dict() for name in ("model", "w"))
    units = [name for name in first if name.endswith(("_u", "_v"))]
    assert len(units) == 2
    for name, value in first.items():
        if name in units:
            assert torch.equal(mean[name], model[name])
            assert float(mean[name].norm()) == pytest.approx(1, abs=1e-6)
        else:
            torch.testing.assert_close(mean[name], value + (1 + ROUNDS) / 2)


def test_trained_arrays_with_names_like_spectral_norms_are_averaged() -> None:
    first = {name: np.array([0.0, 4.0]) for name in ("layer.weight_v", "factors.weight_u", "other._v")}
    strategy = averaged({"layer.weight_g": np.zeros(2)} | first)
    for name in first:  # which clients turn in each round
        assert strategy.value("w")[name].numpy().tolist() == [2, 2]


def test_arrays_named_latest_are_the_latest_models() -> None:
    first = {"weight": np.zeros(3), "quantiser.codebook": np.zeros(2), "quantiser.uses": np.zeros(2, np.int64)}
    strategy = averaged(first, latest=["quantiser"])
    for name in ("w", "ema"):
        value = strategy.value(name)
        assert value["quantiser.codebook"].numpy().tolist() == [ROUNDS, ROUNDS]
        assert value["quantiser.uses"].numpy().tolist() == [ROUNDS, ROUNDS]
        assert (value["weight"].numpy() < ROUNDS).all()


def test_a_name_that_no_array_has_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Averaged.latest = \['codebok'\]: no array or module is called"):
        averaged({"codebook": np.zeros(2)}, latest=["codebok"])
    with pytest.raises(SettingError, match="must be a list of names"):
        averaged({"codebook": np.zeros(2)}, latest="codebook")


@pytest.mark.parametrize("first", [nn.Linear(2, 1).state_dict(), [np.zeros(2)], nn.Linear(2, 1), None])
def test_initial_arrays_of_another_type_are_refused_with_what_would_do(first: Any) -> None:
    with pytest.raises(SettingError, match=r"must be an ArrayRecord, such as ArrayRecord\(model.state_dict\(\)\)"):
        Averaged(FedAvg(), Window(2)).start(grid(), first, 1)


def test_a_pair_of_loss_and_metrics_is_refused_with_what_would_do() -> None:
    strategy: Any = Averaged(FedAvg(fraction_evaluate=0.0), Window(2))
    with pytest.raises(SettingError, match=r"must return a MetricRecord or None; a loss stands in it, too"):
        strategy.start(grid(), ArrayRecord({"w": Array(np.zeros(2))}), 1, evaluate_fn=lambda *_: (0.5, {"accuracy": 1}))


def test_clients_that_leave_arrays_out_are_refused_with_what_would_do() -> None:
    class Leaving(FedAvg):  # type: ignore[misc]
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            return ArrayRecord({name: arrays[name] for name in arrays if name != "norm.weight"}), metrics

    first = ArrayRecord({"weight": Array(np.zeros(2)), "norm.weight": Array(np.zeros(2))})
    with pytest.raises(ModelError, match=r"norm.weight'?\]?: leave arrays that stay with the clients out"):
        Averaged(Leaving(fraction_evaluate=0.0), Window(2)).start(grid(), first, 2)


@pytest.mark.parametrize(("evaluate", "calls"), [("all", 1 + 3 * ROUNDS), ("served", 1 + ROUNDS)])
def test_evaluate_served_gives_the_function_the_served_model_alone(evaluate: Any, calls: int) -> None:
    seen = []

    def judge(round: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(float(arrays["w"].numpy()[0]))
        return MetricRecord({"value": seen[-1]})

    strategy = Averaged(FedAvg(fraction_evaluate=0.0), {"w": Window(2), "ema": EMA(0.5)}, evaluate=evaluate)
    strategy.start(grid(), ArrayRecord({"w": Array(np.zeros(2))}), ROUNDS, evaluate_fn=judge)
    assert len(seen) == calls
    if evaluate == "served":
        assert seen == [0, 1, 1.5, 2.5, 3.5]
