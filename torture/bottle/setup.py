"""What is trained in a case: least squares with a few samples a client, drawn from the case's seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

from fedsash.averages import EMA, Window
from fedsash.client.settings import LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.evaluation import Evaluation
from fedsash.methods import FedAvg, FedDyn, Method, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.network import ConstantWindow, FedAsync, FedBuff, FedWindow
from fedsash.network.schedulers import Scheduler
from fedsash.optimisers import ServerSGD
from fedsash.server.federation import Federation
from fedsash.tasks import Regression

ONE_BY_ONE = LocalEngine("sequential", 1, 1, False, "contiguous", 1)
SAMPLES = 5
"""The samples of a client, but of the last one, which has one less."""

METHODS: Mapping[str, tuple[Method, ServerSGD]] = {
    "fedavg": (FedAvg(), ServerSGD()),
    "momentum": (FedAvg(), ServerSGD(momentum=0.5)),
    "scaffold": (Scaffold(), ServerSGD()),
    "feddyn": (FedDyn(0.1), ServerSGD()),
}
ASYNCHRONOUS = ("fedavg",)
"""The methods of asynchronous schedulers, which move the model themselves."""

AVERAGES: Mapping[str, Mapping[str, Any]] = {
    "window": {"w3": Window(3)},
    "ema": {"ema": EMA(0.5)},
    "both": {"w4": Window(4), "ema": EMA(0.9)},
    "disk": {"w3": Window(3, storage="disk")},
    "none": {},
}
SCHEDULERS: Mapping[str, Scheduler] = {
    "fedasync": FedAsync(weight="polynomial"),
    "fedbuff": FedBuff(2),
    "fedwindow": FedWindow(ConstantWindow(1)),
}


@dataclass(frozen=True)
class Setup:
    """What is trained: `how` is "rounds", the name of an asynchronous scheduler, or "averaged" for Flower's strategy.

    The `clients` are on some `nodes`, client i on node i modulo their number. `asked` of them take part in a round, and
    a state is saved `every` so many rounds. With a `fork` another run goes on from the state after that round, once the
    first has ended. With `held_out` the clients score the models on this share of their samples, `evaluated` every so
    many rounds.
    """

    how: str
    method: str
    averages: str
    clients: int
    nodes: int
    asked: int
    rounds: int
    every: int
    minimum: int
    remember: bool
    fork: int
    held_out: float
    evaluated: int
    seed: int

    @classmethod
    def drawn(cls, chance: Random, seed: int) -> Setup:
        """The setup of a case."""
        how = chance.choice(["rounds", "rounds", "rounds", *SCHEDULERS, "averaged"])
        clients = chance.randint(1, 5)
        asked = chance.randint(1, clients)
        methods = ["scaffold", *METHODS] if how == "rounds" else ASYNCHRONOUS
        rounds = chance.randint(4, 30)
        every = chance.randint(1, 3)
        fork = 0
        if how == "rounds" and chance.random() < 0.3:
            fork = every * chance.randint(1, rounds // every)
        return cls(
            how=how,
            method=chance.choice(methods),
            averages=chance.choice(list(AVERAGES)),
            clients=clients,
            nodes=chance.choice([clients, chance.randint(1, clients)]),
            asked=asked,
            rounds=rounds,
            every=every,
            minimum=chance.randint(1, asked),
            remember=chance.random() < 0.8,
            fork=fork,
            held_out=chance.choice([0.0, 0.0, 0.4]),
            evaluated=chance.choice([3, 1000]),
            seed=seed,
        )

    def federation(self) -> Federation:
        """The federation in a simulation."""
        method, server = METHODS[self.method]
        sampling = Uniform(self.asked) if self.how == "rounds" else Uniform()
        torch.manual_seed(self.seed)
        return Federation(
            nn.Linear(2, 1).double(),
            self.data(),
            method=method,
            server=server,
            averages=dict(AVERAGES[self.averages]),
            local=LocalTraining(lr=0.1, batch=2, epochs=1),
            sampling=sampling,
            evaluation=Evaluation(every=self.evaluated, last=1, held_out=self.held_out),
            engine=ONE_BY_ONE,
            device="cpu",
            seed=self.seed,
        )

    def held_by(self, node: int) -> list[int]:
        """The clients of a node."""
        return list(range(node, self.clients, self.nodes))

    def data(self) -> FederatedData:
        """The samples of all clients."""
        chance = np.random.default_rng(self.seed)
        count = self.clients * SAMPLES - 1
        x = chance.normal(size=(count, 2))
        y = chance.normal(size=count)
        clients = [list(range(begin, min(begin + SAMPLES, count))) for begin in range(0, count, SAMPLES)]
        return FederatedData.from_arrays(x, y, clients, task=Regression())
