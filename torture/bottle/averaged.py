"""A training of Flower's own strategy with averages around it, over the nodes of the bottle."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random, setstate
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedAvgM

from fedsash.averages import EMA, Average, Window
from fedsash.flower import Averaged
from fedsash.flower.averaged.best import BestModel

from .in_numpy import Replay, ema, window
from .node import Node, node_id
from .setup import AVERAGES, Setup
from .told import Told
from .vectors import TOLERANCE, Model, distant

D = 3
"""The length of the model's vector w; beside it are a whole number, and a statistic as long as w."""
STATISTIC = "norm.running_mean"
"""The statistic, by its name in PyTorch."""
SERVERS = {"FedAvg": (1.0, 0.0), "FedAvgM": (0.8, 0.5)}
"""The server's rate and momentum in Flower's strategies."""


@dataclass
class Heard:
    """What a strategy has sent and heard, by the round: the nodes it asked, their replies, and their scores."""

    asked: dict[int, list[int]] = field(default_factory=dict)
    sent: dict[int, Any] = field(default_factory=dict)
    trained: dict[int, list[Any]] = field(default_factory=dict)
    evaluated: dict[int, list[Any]] = field(default_factory=dict)


class AveragedStrategy:
    """A training with Flower's FedAvg or FedAvgM, whose state lies in the folder `out` of the server's machine.

    An exception in a round ends it as a kill does: nothing `rescues` the round.
    """

    rescues = False
    of_sessions = ("lock",)

    def __init__(self, setup: Setup, out: Path, told: Told) -> None:
        self.setup = setup
        self.out = out
        self.told = told
        self.heard = Heard()
        self._first = np.random.default_rng(setup.seed).normal(size=D)

    def new_app(self, node: Node) -> Any:
        """The app of a node: a step towards its own point, and the distance to it as a loss."""
        app = ClientApp()
        point = np.random.default_rng([self.setup.seed, node.number]).normal(size=D)
        if node.broken:
            point = point * np.inf
        samples = node.number + 1

        @app.train()  # type: ignore[untyped-decorator]
        def train(message: Any, context: Any) -> Any:
            w = message.content["arrays"]["w"].numpy()
            steps = message.content["arrays"]["steps"].numpy()
            new_steps = np.rint(steps).astype(int) + samples  # Flower's mean of whole numbers is none
            statistic = message.content["arrays"][STATISTIC].numpy()
            new_statistic = 0.9 * statistic + 0.1 * point
            arrays = ArrayRecord(
                {"w": Array(w + 0.3 * (point - w)), "steps": Array(new_steps), STATISTIC: Array(new_statistic)}
            )
            metrics = MetricRecord({"num-examples": samples})
            return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

        @app.evaluate()  # type: ignore[untyped-decorator]
        def evaluate(message: Any, context: Any) -> Any:
            w = message.content["arrays"]["w"].numpy()
            metrics = MetricRecord({"num-examples": samples, "loss": float(np.sum((w - point) ** 2))})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        return app

    def serve(self, grid: Any) -> Any:
        """One process of the server: it begins the training, or goes on with it, until the end."""
        return self._start(listening(self._strategy, self.heard, self.told), grid, self.out)

    def ended_early(self, strategy: Any) -> str:
        """It never does."""
        return ""

    def is_done(self, strategy: Any) -> bool:
        """Whether the server has made all rounds."""
        return True

    def changes(self, strategy: Averaged, before: Averaged) -> Iterator[str]:
        """What a training has that differs from the one before."""
        for name in ("model", *strategy.averages):
            for array in ("w", "steps", STATISTIC):
                if strategy.value(name)[array].data != before.value(name)[array].data:
                    yield f"{array} of {name}"
        if strategy.best is not None and strategy.best_model != before.best_model:
            yield "the best model"

    def left_over_at(self, node: Path) -> Iterator[str]:
        """The files of a node: it keeps none."""
        for file in node.rglob("*"):
            yield f"{file} is left over"

    def violations(self, strategy: Any) -> Iterator[str]:
        """What differs from the same replies without faults, and from the same rounds in NumPy."""
        replies = Replies(self.heard, [node_id(node) for node in range(self.setup.nodes)])
        expected = self._start(self._strategy, replies, None)
        if self.told.nodes_stay() and self.heard.asked != replies.asked:
            yield "other nodes were asked than without faults"
        for name in ("model", *strategy.averages):
            for array in ("w", "steps", STATISTIC):
                if strategy.value(name)[array].data != expected.value(name)[array].data:
                    yield f"{array} of {name} is not that of the run without faults"
        for name, average in strategy.averages.items():
            served = strategy.value(name)[STATISTIC].data
            if average.buffers == "latest" and served != strategy.value("model")[STATISTIC].data:
                yield f"the statistic of {name} is not the last one"
        yield from self._unlike_numpy(strategy)
        for path in self.out.rglob(".*.tmp"):
            yield f"{path.name} is left over"

    def _unlike_numpy(self, strategy: Averaged) -> Iterator[str]:
        """What differs from the same rounds in NumPy."""
        rate, momentum = SERVERS[self.setup.server]
        replay = Replay(self._first, _in_numpy(strategy.averages[strategy.serve]), self.setup.broadcast, rate, momentum)
        replay.make(self.setup.rounds, self.heard.trained)
        there = "that in NumPy"
        yield from distant("the model", _w(strategy.value("model")), replay.model, there)
        yield from distant("the served average", _w(strategy.value(strategy.serve)), replay.average, there)
        for round, sent in self.heard.sent.items():
            yield from distant(f"what the clients of round {round} received", sent, replay.sent[round], there)
        if strategy.best is not None:
            yield from self._wrong_best(strategy.best_model, replay)

    def _wrong_best(self, best: BestModel | None, replay: Replay) -> Iterator[str]:
        """A best model that is not the served one with the smallest loss, or is not kept though a loss is a number."""
        losses = {round: float(np.sum(w**2)) for round, w in replay.served.items()}
        if self.setup.evaluation == "by clients":
            losses = self._losses_by_clients()
        numbers = [value for value in losses.values() if not np.isnan(value)]
        if best is None:
            if numbers:
                yield f"no best model is kept, and the losses are {losses}"
            return
        yield from distant("the best model", _w(best.arrays), replay.served[best.round], "that in NumPy")
        if not np.allclose([min(numbers), losses[best.round]], best.score, rtol=TOLERANCE, atol=TOLERANCE):
            yield f"the best model is of round {best.round}, and the losses are {losses}"

    def _losses_by_clients(self) -> dict[int, float]:
        """The mean of the clients' losses, weighted by their numbers of samples, in the rounds that have any."""
        losses = {}
        for round, replies in self.heard.evaluated.items():
            metrics = [reply.content["metrics"] for reply in replies if reply.has_content()]
            if metrics:
                samples = [each["num-examples"] for each in metrics]
                losses[round] = float(np.average([each["loss"] for each in metrics], weights=samples))
        return losses

    @property
    def _strategy(self) -> type[FedAvg]:
        kinds: dict[str, type[FedAvg]] = {"FedAvg": FedAvg, "FedAvgM": FedAvgM}
        return kinds[self.setup.server]

    def _start(self, kind: type[FedAvg], grid: Any, folder: Path | None) -> Averaged:
        settings = {}
        if self.setup.server == "FedAvgM":
            rate, momentum = SERVERS["FedAvgM"]
            settings = {"server_learning_rate": rate, "server_momentum": momentum}
        by_clients = self.setup.evaluation == "by clients"
        inner = kind(
            fraction_train=self.setup.asked / self.setup.clients,
            fraction_evaluate=1.0 if by_clients else 0.0,
            min_train_nodes=1,
            min_evaluate_nodes=1 if by_clients else 0,
            min_available_nodes=1,
            **settings,
        )
        averages = dict(AVERAGES[self.setup.averages]) or dict(AVERAGES["window"])
        if self.setup.seed % 2:
            averages = {name: replace(average, buffers="latest") for name, average in averages.items()}
        setstate(Random(self.setup.seed).getstate())  # each process draws anew, but for what its state tells it
        best: tuple[str, Literal["min"]] | None = None
        if self.setup.evaluation.startswith("by"):
            best = ("loss", "min")
        strategy = Averaged(inner, averages, broadcast=self.setup.sent(), best=best, folder=folder)
        strategy.start(
            grid,
            ArrayRecord(
                {"w": Array(self._first), "steps": Array(np.zeros(1, dtype=int)), STATISTIC: Array(np.zeros(D))}
            ),
            num_rounds=self.setup.rounds,
            timeout=self.setup.deadline,
            train_config=ConfigRecord(),
            evaluate_fn=loss if self.setup.evaluation == "by the server" else None,
        )
        return strategy


def _w(arrays: ArrayRecord) -> Any:
    """The vector of a model."""
    return arrays["w"].numpy()


def _in_numpy(average: Average) -> Callable[[Sequence[Model]], Model]:
    """What makes the same average of models in NumPy."""
    match average:
        case Window(size=size):
            return partial(window, size=size)
        case EMA(decay=decay):
            return partial(ema, decay=decay)
        case _:
            raise TypeError(f"{average} is not in NumPy")


def loss(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The squared length of a model, as a loss."""
    return MetricRecord({"loss": float(np.sum(arrays["w"].numpy() ** 2))})


def listening(kind: type[FedAvg], heard: Heard, told: Told) -> type[FedAvg]:
    """A strategy of this kind that notes what it sends and aggregates."""
    begun = False

    class Listening(kind):  # type: ignore[misc]
        """Notes what it sends and aggregates."""

        def configure_train(self, server_round: int, arrays: ArrayRecord, *more: Any) -> Iterable[Message]:
            messages = list(super().configure_train(server_round, arrays, *more))
            heard.asked[server_round] = [message.metadata.dst_node_id for message in messages]
            heard.sent[server_round] = arrays["w"].numpy()
            heard.evaluated.pop(server_round, None)
            return messages

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            nonlocal begun
            if not begun:
                told.begun(server_round - 1, server_round > 1)
            begun = True
            told.state_saved(server_round - 1)
            answers = list(replies)
            heard.trained[server_round] = copy.deepcopy(answers)
            nodes = [reply.metadata.src_node_id for reply in answers if reply.has_content()]
            told.round(server_round, f"heard of the nodes {nodes}")
            if server_round in told.after_round:
                told.after_round.pop(server_round)()
            return super().aggregate_train(server_round, answers)

        def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
            answers = list(replies)
            heard.evaluated[server_round] = answers
            return super().aggregate_evaluate(server_round, answers)

    return Listening


class Replies:
    """A grid that gives the replies that were heard, round by round."""

    def __init__(self, heard: Heard, nodes: list[int]) -> None:
        self._heard = heard
        self._nodes = nodes
        self._round = 0
        self.asked: dict[int, list[int]] = {}
        self.run = None

    def get_node_ids(self) -> list[int]:
        """All nodes, which are always there."""
        return self._nodes

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """The replies of the round, or its scores."""
        requests = list(messages)
        if not requests:
            return []
        if requests[0].metadata.message_type == "evaluate":
            return self._heard.evaluated.get(self._round, [])
        self._round += 1
        self.asked[self._round] = [request.metadata.dst_node_id for request in requests]
        return self._heard.trained.get(self._round, [])
