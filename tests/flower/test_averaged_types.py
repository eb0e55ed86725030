"""Types, shapes, whole numbers and statistics of averaged models, and what can't be averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.apps import grid
from support.by_default import some

# isort: split
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as strategies

from fedsash import EMA, SettingError, Window
from fedsash.averages import BEMA
from fedsash.errors import ModelError
from fedsash.extend import Average
from fedsash.flower import Averaged

FIRST: dict[str, NDArray[Any]] = {
    "half": np.ones(2, np.float16),
    "single": np.zeros((2, 1, 3), np.float32),
    "double": np.zeros((), np.float64),
    "swapped": np.zeros(2, ">f4"),
    "none": np.zeros((0, 3), np.float32),
    "layer.bn.running_mean": np.zeros(2, np.float32),
    "layer.bn.num_batches_tracked": np.asarray(2**40, np.int64),
    "bytes": np.zeros(2, np.uint8),
    "mask": np.array([True, False]),
}


def record(arrays: dict[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def kinds(model: ArrayRecord) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (array.dtype, tuple(array.shape)) for name, array in model.items()}


def typed(x: Any, dtype: Any) -> NDArray[Any]:
    return np.asarray(np.rint(x) if dtype.kind in "iu" else x).astype(dtype)


def node(message: Message, context: Context) -> Message:
    """Each node adds 1, 4 or 7 to all values but the mask, and rounds whole numbers."""
    more = 1 + 3 * int(context.node_config["partition-id"])
    sent = {name: array.numpy() for name, array in message.content["arrays"].items()}
    up = {n: x if n == "mask" else typed(x + more, FIRST[n].dtype) for n, x in sent.items()}
    metrics = MetricRecord({"num-examples": 1, "train_loss": 1.0})
    return Message(RecordDict({"arrays": record(up), "metrics": metrics}), reply_to=message)


def started(strategy: Any, averages: Any, rounds: int = 3, first: dict[str, NDArray[Any]] = FIRST, **more: Any) -> Any:
    app = ClientApp()
    app.train()(node)
    averaged = Averaged(strategy, averages, **more)
    averaged.start(grid(app, 3), record(first), rounds)
    return averaged


@pytest.mark.parametrize(
    "kind", some(["FedAvg", "FedAvgM", "FedAdam", "FedMedian", "FedTrimmedAvg"], "FedAdam", "FedMedian")
)
def test_averages_have_the_types_and_shapes_of_the_first_model(kind: str) -> None:
    own = getattr(strategies, kind)(fraction_evaluate=0.0)
    averaged = started(own, {"wima": Window(2), "ema": EMA(0.5), "latest": Window(2, buffers="latest")})
    for name in ("model", "wima", "ema", "latest"):
        assert kinds(averaged.value(name)) == kinds(record(FIRST))


def test_whole_numbers_are_averaged_and_rounded_and_large_ones_are_exact() -> None:
    """FedAvg adds 4 in each round: after three of them Window(2) has the mean of 8 and 12."""
    averaged = started(strategies.FedAvg(fraction_evaluate=0.0), {"wima": Window(2), "one": Window(1)})
    value = {name: array.numpy() for name, array in averaged.value("wima").items()}
    assert value["layer.bn.num_batches_tracked"] == 2**40 + 10
    assert value["bytes"].tolist() == [10, 10] and value["mask"].tolist() == [True, False]
    assert value["layer.bn.running_mean"].tolist() == [10.0, 10.0] and value["half"].tolist() == [11.0, 11.0]
    for name, array in averaged.value("one").items():
        assert np.array_equal(array.numpy(), averaged.value("model")[name].numpy())


def test_whole_numbers_that_a_strategy_moves_out_of_their_types_range_do_not_begin_again_at_its_other_end() -> None:
    class Beyond(strategies.FedAvg):  # type: ignore[misc]
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return record(FIRST | {"bytes": np.array([300.0, -3.0])}), None

    averaged = started(Beyond(fraction_evaluate=0.0), Window(3))
    assert averaged.value("average")["bytes"].numpy().tolist() == [255, 0]


def test_statistics_are_averaged_or_the_latest_and_a_part_is_named() -> None:
    averages = {
        "average": Window(2),
        "latest": Window(2, buffers="latest"),
        "bema": BEMA(),
        "layer": Window(2, part="layer"),
        "two": Window(2, part=("single", "half")),
    }
    averaged = started(strategies.FedAvg(fraction_evaluate=0.0), averages)

    def means(name: str) -> list[float]:
        names = ("single", "layer.bn.running_mean", "half")
        return [float(averaged.value(name)[each].numpy().ravel()[0]) for each in names]

    assert means("average") == [10.0, 10.0, 11.0] and means("latest") == [10.0, 12.0, 11.0]
    assert means("bema")[1] == 12.0
    assert means("layer") == [12.0, 10.0, 13.0] and means("two") == [10.0, 12.0, 11.0]


@pytest.mark.parametrize(
    "average, line",
    [
        (Window(2, buffers="re-estimate"), 'buffers = .re-estimate.: "re-estimate" needs samples, which a strategy'),
        (Window(2, part="head"), r"part = 'head': no array or module is called \['head'\]; there are"),
        (Window(2, part="classifier"), "part = 'classifier': no array or module is called"),
    ],
)
def test_what_an_average_can_not_have_is_refused_when_it_starts(average: Average, line: str) -> None:
    with pytest.raises(SettingError, match=f"^{line}"):
        started(strategies.FedAvg(), average)


@pytest.mark.parametrize(
    "first, line",
    [
        ({"0": np.zeros(9, np.uint8)}, "the first model has uint8, and only floating-point arrays can be averaged"),
        ({}, "the first model has no array, and"),
        (
            {"z": np.zeros(2, np.complex64), "w": np.zeros(1)},
            "the array z has the type complex64, which has no average",
        ),
    ],
)
def test_a_model_without_floating_point_numbers_is_refused(first: dict[str, NDArray[Any]], line: str) -> None:
    with pytest.raises(ModelError, match=f"^Averaged: {line}"):
        started(strategies.FedAvg(), Window(2), first=first)


class Other(strategies.FedAvg):  # type: ignore[misc,name-defined]
    """A strategy whose model is another one than the first."""

    def __init__(self, model: ArrayRecord) -> None:
        super().__init__()
        self.other = model

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return self.other, None


@pytest.mark.parametrize(
    "other, line",
    [
        ({"w": np.zeros(3)}, r"w has the shape \[3\] in the strategy's model and \[2\] at first"),
        ({"v": np.zeros(2)}, r"the strategy's model differs from the first one in the arrays \['w', 'v'\]"),
    ],
)
def test_a_model_of_another_shape_is_refused_by_its_arrays_names(other: dict[str, NDArray[Any]], line: str) -> None:
    with pytest.raises(ModelError, match=f"^Averaged: {line}"):
        started(Other(record(other)), Window(2), first={"w": np.zeros(2)})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "value, line",
    [
        (1e6, "round 1: array w does not fit the first model's float16; the round is left out"),
        (np.nan, "round 1: the strategy's model is not finite; the round is left out"),
    ],
)
def test_a_round_that_is_left_out_says_whether_its_model_is_not_finite_or_does_not_fit_the_first_ones_type(
    value: float, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = record({"w": np.full(2, value, np.float32)})
    averaged = started(Other(other), Window(2), rounds=1, first={"w": np.zeros(2, np.float16)})
    assert line in caplog.text and averaged.value("model")["w"].numpy().tolist() == [0, 0]
