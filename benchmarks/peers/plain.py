"""Federated averaging as one would write it by hand in PyTorch: the yardstick. Threads are the environment's."""

from __future__ import annotations

import copy

import numpy as np
import torch

from .clock import Clock
from .modules import loss, module, parameters, trained
from .works import PER_ROUND, Given


def run(given: Given, clock: Clock, seed: int) -> None:
    work = given.work
    rng = np.random.default_rng(seed)
    model = module(given)
    local = copy.deepcopy(model)
    while True:
        clients = rng.choice(len(given.clients), PER_ROUND, replace=False)
        total = [torch.zeros_like(p) for p in trained(model)]
        for client in clients:
            local.load_state_dict(model.state_dict())
            optimiser = torch.optim.SGD(trained(local), lr=work.lr, momentum=work.momentum)
            x, y = (torch.from_numpy(part.copy()) for part in given.client(client))
            for index in given.orders(client, rng):
                optimiser.zero_grad()
                loss(local(x[index]), y[index]).backward()
                optimiser.step()
            share = given.samples(client) / given.samples(clients)
            with torch.no_grad():
                for sum_, p in zip(total, trained(local), strict=True):
                    sum_.add_(p, alpha=share)
        with torch.no_grad():
            for p, mean in zip(trained(model), total, strict=True):
                p.copy_(mean)
        clock.round(given.samples(clients), parameters(model))
