"""ClientApps for a grid in this process, whose nodes do what `support.by_hand` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsash.testing.grid import InProcessGrid
from support.by_hand import NODES, STRATEGIES, loss, trained

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import Strategy

MODS = {
    "DifferentialPrivacyClientSideFixedClipping": [fixedclipping_mod],
    "DifferentialPrivacyClientSideAdaptiveClipping": [adaptiveclipping_mod],
}


def arrays(z: np.ndarray[Any, Any]) -> ArrayRecord:
    """A vector `[5]` as a model of two arrays."""
    return ArrayRecord({"a.weight": Array(z[:3].copy()), "b.weight": Array(z[3:].reshape(1, 2).copy())})


def vector(record: ArrayRecord) -> np.ndarray[Any, Any]:
    """The vector of `arrays`."""
    return np.concatenate([record[name].numpy().ravel() for name in ("a.weight", "b.weight")])


def grid(app: ClientApp | Callable[..., Message], nodes: int) -> InProcessGrid:
    """A grid of nodes with the partition ids 0, 1, ..."""
    return InProcessGrid(app, {100 + i: {"partition-id": i, "num-partitions": nodes} for i in range(nodes)})


class Nodes:
    """Seven nodes, and all that they received: a vector for each message."""

    def __init__(self, kind: str = "FedAvg", spoil: Callable[[int, int], str] = lambda round, node: "") -> None:
        self.received: list[np.ndarray[Any, Any]] = []
        self.evaluated: list[np.ndarray[Any, Any]] = []
        app = ClientApp()
        app.train(mods=MODS.get(kind, []))(self._train)
        app.evaluate()(self._evaluate)
        self.spoil = spoil
        self.grid = grid(app, NODES)

    def _train(self, message: Message, context: Context) -> Message:
        sent, node = vector(message.content["arrays"]), int(context.node_config["partition-id"])
        self.received.append(sent)
        how = self.spoil(int(message.content["config"]["server-round"]), node)
        if how == "fails":
            raise OSError("no data")
        up = trained(sent, node) * (np.nan if how == "nan" else 1.0)
        metrics = MetricRecord({"num-examples": node + 1, "train_loss": loss(sent, node)})
        return Message(RecordDict({"arrays": arrays(up), "metrics": metrics}), reply_to=message)

    def _evaluate(self, message: Message, context: Context) -> Message:
        z = vector(message.content["arrays"])
        self.evaluated.append(z)
        metrics = MetricRecord({"num-examples": 1, "first": float(z[0])})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)


def strategy(kind: str) -> Strategy:
    """A strategy of Flower with the arguments of `STRATEGIES`."""
    made = getattr(strategies, kind)
    given = STRATEGIES[kind][0]
    return made(strategies.FedAvg(), **given) if kind.startswith("DifferentialPrivacy") else made(**given)


def scores(round: int, record: ArrayRecord) -> MetricRecord:
    """An `evaluate_fn` that gives the model itself."""
    return MetricRecord({"z": vector(record).tolist()})
