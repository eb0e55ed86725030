"""Flower: Ray simulation with two actors of one CPU, FedAvg of the message API without evaluation.

An actor keeps its module and the mapped samples between messages, which saves it building them for every client.
"""

from __future__ import annotations

import contextlib
import logging
from functools import cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from .clock import Clock, Enough
from .modules import loss, module, trained
from .works import PER_ROUND, Given


@cache
def held(name: str, folder: str) -> tuple[Given, torch.nn.Module]:
    """What an actor keeps."""
    given = Given(name, folder)
    return given, module(given)


def client_app(name: str, folder: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        given, net = held(name, folder)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(trained(net), given.work.lr, momentum=given.work.momentum)
        number = int(context.node_config["partition-id"])
        x, y = (torch.from_numpy(part.copy()) for part in given.client(number))
        for index in given.orders(number, np.random.default_rng()):
            optimiser.zero_grad()
            loss(net(x[index]), y[index]).backward()
            optimiser.step()
        arrays = ArrayRecord(net.state_dict())
        metrics = MetricRecord({"num-examples": len(x)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


class Counted(FedAvg):
    """FedAvg that says how many samples a round had."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        self.samples = sum(int(reply.content["metrics"]["num-examples"]) for reply in replies)
        return super().aggregate_train(server_round, replies)


def run(given: Given, clock: Clock, seed: int) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    clients = len(given.clients)
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        net = module(given)
        names = [name for name, p in net.named_parameters() if p.requires_grad]
        strategy = Counted(PER_ROUND / clients, 0.0, PER_ROUND, min_available_nodes=clients)

        def told(server_round: int, arrays: ArrayRecord) -> None:
            if server_round:
                clock.round(strategy.samples * given.work.epochs, lambda: [arrays[name].numpy() for name in names])

        with contextlib.suppress(Enough):
            strategy.start(grid, ArrayRecord(net.state_dict()), 10**6, evaluate_fn=told)

    run_simulation(
        server,
        client_app(given.work.name, str(given.folder)),
        clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}},
    )
    raise Enough
