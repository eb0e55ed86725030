"""BlazeFL: its FedAvg with two threads, the mode that it recommends.

Its threads run side by side on a Python without a global lock; on others PyTorch gives the lock back while it computes.
Its pool of processes is started anew in every round, which costs more than it brings in these works. The package asks
for Python 3.12 and runs on 3.11, for which PyTorch's CPU build is at hand.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from blazefl.contrib import FedAvgBaseServerHandler, FedAvgThreadPoolClientTrainer, FedAvgUplinkPackage
from blazefl.core import deserialize_model, serialize_model
from torch.utils.data import DataLoader, TensorDataset

from .clock import Clock
from .modules import loss, module, parameters, trained
from .works import PER_ROUND, Given

THREADS = 2


class Modules:
    """A model selector, which is asked for a module for every client."""

    def __init__(self, given: Given) -> None:
        self.first = module(given)

    def select_model(self, model_name: str) -> torch.nn.Module:
        return copy.deepcopy(self.first)


class Clients:
    """A partitioned dataset."""

    def __init__(self, given: Given) -> None:
        self.given = given

    def get_dataloader(self, type_: Any, cid: int, batch_size: int, generator: Any = None) -> DataLoader[Any]:
        data = TensorDataset(*(torch.from_numpy(part.copy()) for part in self.given.client(cid)))
        return DataLoader(data, batch_size, shuffle=True, generator=generator)


class Quiet(FedAvgThreadPoolClientTrainer):
    """Shows no progress, and trains with momentum and the work's loss."""

    def progress_fn(self, it: Any) -> Any:
        return it

    def train(self, model: Any, model_parameters: Any, train_loader: Any, *, cid: int, **_: Any) -> Any:
        deserialize_model(model, model_parameters)
        optimiser = torch.optim.SGD(trained(model), self.lr, momentum=self.momentum)
        for _ in range(self.epochs):
            for x, y in train_loader:
                optimiser.zero_grad()
                loss(model(x), y).backward()
                optimiser.step()
        return FedAvgUplinkPackage(cid, serialize_model(model), len(train_loader.dataset))


def run(given: Given, clock: Clock, seed: int) -> None:
    work = given.work
    data = Clients(given)
    select = Modules(given)
    shared = {"model_selector": select, "model_name": work.name, "dataset": data, "device": "cpu"}
    shared |= {"num_clients": len(given.clients), "batch_size": work.batch, "seed": seed}
    server = FedAvgBaseServerHandler(**shared, global_round=10**9, sample_ratio=PER_ROUND / len(given.clients))
    server.num_clients_per_round = PER_ROUND
    trainer = Quiet(**shared, epochs=work.epochs, lr=work.lr, num_parallels=THREADS)
    trainer.momentum = work.momentum
    while True:
        clients = server.sample_clients()
        trainer.local_process(server.downlink_package(), clients)
        for package in trainer.uplink_package():
            server.load(package)
        clock.round(given.samples(clients), parameters(server.model))
