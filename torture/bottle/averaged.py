"""Flower's FedAvg with averages around it; what must hold is that its heard replies alone give the same averages."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random, setstate
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedsash.averages import Window
from fedsash.flower import Averaged

from .machine import Machine
from .node import node_id
from .setup import AVERAGES, Setup
from .told import Told

D = 3
"""The length of the model's only vector."""

TOLERANCE = 1e-12
"""How far a window may be from the mean of its models."""

Heard = dict[int, list[Any]]
"""The replies that a strategy aggregated, by their round."""


class AveragedStrategy:
    """A training with Flower's FedAvg, whose state lies in the folder `out` of the server's machine."""

    def __init__(self, setup: Setup, out: Path, told: Told) -> None:
        self.setup = setup
        self.out = out
        self.told = told
        self.heard: Heard = {}
        self.asked: dict[int, list[int]] = {}
        self._first = np.random.default_rng(setup.seed).normal(size=D)

    def new_app(self, node: int, machine: Machine) -> Any:
        """The app of a node: a step towards its own point."""
        app = ClientApp()

        @app.train()  # type: ignore[untyped-decorator]
        def train(message: Any, context: Any) -> Any:
            point = np.random.default_rng([self.setup.seed, node]).normal(size=D)
            w = message.content["arrays"]["w"].numpy()
            arrays = ArrayRecord({"w": Array(w + 0.3 * (point - w))})
            metrics = MetricRecord({"num-examples": node + 1})
            return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

        return app

    def serve(self, grid: Any) -> Any:
        """One process of the server: it begins the training, or goes on with it, until the end."""
        told = self.told
        asked = self.asked
        heard = self.heard
        every_round: list[int] = []

        class Listening(FedAvg):  # type: ignore[misc]
            """Notes what it aggregates."""

            def configure_train(self, server_round: int, *more: Any) -> Iterable[Message]:
                messages = list(super().configure_train(server_round, *more))
                asked[server_round] = [message.metadata.dst_node_id for message in messages]
                return messages

            def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
                if not every_round:
                    told.begun(server_round - 1, server_round > 1)
                every_round.append(server_round)
                told.state_saved(server_round - 1)
                answers = list(replies)
                heard[server_round] = copy.deepcopy(answers)
                nodes = [reply.metadata.src_node_id for reply in answers if reply.has_content()]
                told.round(server_round, f"heard of the nodes {nodes}")
                return super().aggregate_train(server_round, answers)

        return self._start(Listening, grid, self.out)

    def is_done(self, strategy: Any) -> bool:
        """Whether the server has made all rounds."""
        return True

    def violations(self, strategy: Any, nodes: Iterable[Path]) -> Iterator[str]:
        """The averages that differ from those of the same replies without faults; nodes keep nothing."""
        replies = Replies(self.heard, [node_id(node) for node in range(self.setup.nodes)])
        expected = self._start(FedAvg, replies, None)
        if not self.told.nodes_change and self.asked != replies.asked:
            yield "other nodes were asked than without faults"
        for name in ("model", *strategy.averages):
            ours = strategy.value(name)["w"].numpy().tobytes()
            if ours != expected.value(name)["w"].numpy().tobytes():
                yield f"{name} is not that of the run without faults"
        models = self._models()
        for name, average in strategy.averages.items():
            if isinstance(average, Window) and models:
                mean = np.mean(models[-average.size :], axis=0)
                error = float(np.abs(strategy.value(name)["w"].numpy() - mean).max())
                if not error <= TOLERANCE:
                    yield f"{name} is {error:.1e} away from the mean of the last models"
        for path in self.out.rglob(".*.tmp"):
            yield f"{path.name} is left over"

    def _models(self) -> list[Any]:
        """The models of the rounds that made one: means of the replies, weighted by their numbers of samples."""
        models = []
        for round in sorted(self.heard):
            replies = [reply.content for reply in self.heard[round] if reply.has_content()]
            if not replies:
                continue
            weights = [content["metrics"]["num-examples"] for content in replies]
            model = np.average([content["arrays"]["w"].numpy() for content in replies], axis=0, weights=weights)
            if np.isfinite(model).all():
                models.append(model)
        return models

    def _start(self, kind: type[FedAvg], grid: Any, folder: Path | None) -> Averaged:
        inner = kind(
            fraction_train=self.setup.asked / self.setup.clients,
            fraction_evaluate=0.0,
            min_train_nodes=1,
            min_evaluate_nodes=0,
            min_available_nodes=1,
        )
        averages = dict(AVERAGES[self.setup.averages]) or dict(AVERAGES["window"])
        setstate(Random(self.setup.seed).getstate())  # each process draws anew, but for what its state tells it
        strategy = Averaged(inner, averages, folder=folder)
        first = ArrayRecord({"w": Array(self._first)})
        strategy.start(grid, first, num_rounds=self.setup.rounds, timeout=30.0, train_config=ConfigRecord())
        return strategy


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
        """The replies of the round; there is no evaluation."""
        requests = list(messages)
        if not requests:
            return []
        self._round += 1
        self.asked[self._round] = [request.metadata.dst_node_id for request in requests]
        return self._heard.get(self._round, [])
