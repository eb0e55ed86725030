"""Federated averaging as one would write it by hand in PyTorch: the yardstick.

python -m benchmarks.plain W1 1    the rounds a second of a workload (see benchmarks.speed) with so many threads
"""

from __future__ import annotations

import copy
import sys
import time

import torch
from torch import Tensor, nn


def train(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    clients: list[Tensor],
    *,
    rounds: int,
    per_round: int,
    lr: float,
    momentum: float,
    batch: int,
    epochs: int,
) -> Tensor:
    """Train `module` in place by FedAvg over equal clients; the last local loss, so that nothing is optimised away."""
    criterion = nn.CrossEntropyLoss()
    local = copy.deepcopy(module)
    loss = torch.zeros(())
    for _ in range(rounds):
        total = [torch.zeros_like(p) for p in module.parameters()]
        for client in torch.randperm(len(clients))[:per_round].tolist():
            local.load_state_dict(module.state_dict())
            optimiser = torch.optim.SGD(local.parameters(), lr=lr, momentum=momentum)
            for _ in range(epochs):
                for index in clients[client][torch.randperm(len(clients[client]))].split(batch):
                    optimiser.zero_grad()
                    loss = criterion(local(x[index]), y[index])
                    loss.backward()
                    optimiser.step()
            with torch.no_grad():
                for sum_, p in zip(total, local.parameters(), strict=True):
                    sum_.add_(p, alpha=1 / per_round)
        with torch.no_grad():
            for p, mean in zip(module.parameters(), total, strict=True):
                p.copy_(mean)
    return loss.detach()


def main(name: str, threads: int) -> None:
    from .speed import WORKLOADS

    torch.set_num_threads(threads)
    work = WORKLOADS[name]
    data, module = work.data(), work.model()
    x = data.transform.prepare(data.train.x).clone(memory_format=torch.contiguous_format)
    clients = [torch.from_numpy(client) for client in data.clients]
    settings = {"lr": work.lr, "momentum": work.momentum, "batch": work.batch, "epochs": work.epochs}
    train(module, x, data.train.y, clients, rounds=1, per_round=1, **settings)
    began = time.perf_counter()
    train(module, x, data.train.y, clients, rounds=work.plain_rounds, per_round=10, **settings)
    print(work.plain_rounds / (time.perf_counter() - began))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
