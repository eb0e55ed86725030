"""What is trained in a case: least squares or a classification with a few samples a client, drawn from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsash.averages import EMA, Window
from fedsash.client.optimisers import Adam
from fedsash.client.settings import LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.flower import NamedModel, Waiting
from fedsash.flower.nodes.client import ONE_BY_ONE
from fedsash.methods import FedAvg, FedDyn, Method, Mime, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.network import ConstantWindow, FedAsync, FedBuff, FedWindow
from fedsash.network.schedulers import Scheduler
from fedsash.optimisers import ServerSGD
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from fedsash.tasks import Regression
from fedsash.vector.sharing import Personal

from .growing import Growing

SAMPLES = 5
"""The samples of a client, but of the last one, which has one less."""
TEST_SAMPLES = 6
LABELS = ("ant", "bee", "cow")
FEATURES = ("height", "weight")
"""The names of a table's classes and features."""

PLAIN = LocalTraining(lr=0.1, batch=2, epochs=1)
METHODS: Mapping[str, tuple[Method, ServerSGD, LocalTraining]] = {
    "fedavg": (FedAvg(), ServerSGD(), PLAIN),
    "momentum": (FedAvg(), ServerSGD(momentum=0.5), PLAIN),
    "scaffold": (Scaffold(), ServerSGD(), PLAIN),
    "mime": (Mime(), ServerSGD(), PLAIN),
    "feddyn": (FedDyn(0.1), ServerSGD(), PLAIN),
    "adam": (FedAvg(), ServerSGD(), replace(PLAIN, optimiser=Adam(), keep_moments=True)),
    "personal": (FedAvg(), ServerSGD(), PLAIN),
    "growing": (Growing(), ServerSGD(), PLAIN),
}
"""Of "personal" the bias stays with each client; "mime" asks clients for a gradient before they train."""
ASYNCHRONOUS = ("fedavg",)
"""The methods of asynchronous schedulers, which move the model themselves."""

AVERAGES: Mapping[str, Mapping[str, Any]] = {
    "window": {"w3": Window(3)},
    "ema": {"ema": EMA(0.5)},
    "both": {"w4": Window(4), "ema": EMA(0.9)},
    "disk": {"w3": Window(3, storage="disk")},
    "none": {},
}
SCHEDULERS = ("fedasync", "fedbuff", "fedwindow")
EVALUATIONS: Mapping[str, Evaluation] = {
    "none": Evaluation(),
    "held out": Evaluation(held_out=0.4),
    "fine-tuned": Evaluation(held_out=0.4, fine_tuning=FineTuning()),
    "by the server": Evaluation(best_on="test"),
    "by clients": Evaluation(clients=True, client_test=True),
}


def squared(output: Tensor, y: Tensor) -> Tensor:
    """The squared error of each sample, as a loss of one's own."""
    return (output.reshape(y.shape) - y) ** 2


def absolute(output: Tensor, y: Tensor) -> Tensor:
    """The mean absolute error of samples, as a metric of one's own."""
    return (output.reshape(y.shape) - y).abs().mean()


@dataclass(frozen=True)
class Setup:
    """What is trained: `how` is "rounds", the name of an asynchronous scheduler, or "averaged" for Flower's strategy.

    The `clients` are on some `nodes`, client i on node i modulo their number. `asked` of them take part in a round, and
    a state is saved `every` so many rounds. With a `fork` another run goes on from the state after that round, once the
    first has ended. `evaluation` is by whom, `evaluated` every so many rounds. A `table` has names of classes and
    features, which each node has in another order, and a model by name. From the model after `broadcast` rounds on, if
    that is not 0, clients receive the first average; `order` is that of the broadcast. The sum of all models is saved
    after every `sums` rounds, if that is not 0. `server` is Flower's strategy. With `own_code`, loss and
    metric are functions that nodes find by their place. A round waits for answers until the `deadline`, and a server
    for nodes as long as a `roll_call`, in seconds.
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
    evaluation: str
    evaluated: int
    table: bool
    broadcast: int
    order: str
    sums: int
    server: str
    own_code: bool
    deadline: float
    roll_call: float
    seed: int

    @classmethod
    def drawn(cls, chance: Random, seed: int) -> Setup:
        """The setup of a case."""
        how = chance.choice(["rounds", "rounds", "rounds", *SCHEDULERS, "averaged"])
        clients = chance.randint(1, 5)
        asked = chance.randint(1, clients)
        methods = ["scaffold", *METHODS] if how == "rounds" else ASYNCHRONOUS
        method = chance.choice(methods)
        rounds = chance.randint(6, 36)
        every = chance.randint(1, 3)
        fork = 0
        if how == "rounds" and chance.random() < 0.3:
            fork = every * chance.randint(1, rounds // every)
        averages = chance.choice(list(AVERAGES))
        table = chance.random() < 0.2
        broadcast = 0
        if how in ("rounds", "averaged") and averages != "none" and chance.random() < 0.4:
            broadcast = chance.randint(1, rounds)
        return cls(
            how=how,
            method=method,
            averages=averages,
            clients=clients,
            nodes=chance.choice([clients, chance.randint(1, clients)]),
            asked=asked,
            rounds=rounds,
            every=every,
            minimum=chance.randint(1, asked),
            remember=chance.random() < 0.8,
            fork=fork,
            evaluation=chance.choice(["none", "none", "none", *EVALUATIONS]),
            evaluated=chance.choice([4, 1000, 1000]),
            table=table,
            broadcast=broadcast,
            order=chance.choice(["after", "after", "before", "code"]),
            sums=chance.choice([0, 0, 0, chance.randint(1, 4)]),
            server=chance.choice(["FedAvg", "FedAvgM"]),
            own_code=not table and chance.random() < 0.2,
            deadline=chance.choice([30.0, 30.0, 150.0]),
            roll_call=chance.choice([60.0, 200.0, 200.0, 400.0]),
            seed=seed,
        )

    @property
    def model(self) -> NamedModel | None:
        """The model by name, if nodes have none of their own."""
        if not self.table:
            return None
        return NamedModel("mlp", {"hidden": []}, shape=(len(FEATURES),), outputs=len(LABELS), seed=self.seed)

    @property
    def scheduler(self) -> Scheduler:
        """What moves the server of an asynchronous run."""
        match self.how:
            case "fedasync":
                return FedAsync(weight="polynomial")
            case "fedbuff":
                return FedBuff(2)
            case _:
                return FedWindow(ConstantWindow(self.window))

    @property
    def window(self) -> int:
        """The number of clients in FedWindow's window."""
        return min(2, self.clients)

    def waiting(self, minimum: int) -> Waiting:
        """How long the server waits for nodes; for fewer usable uploads than the minimum a round is skipped."""
        return Waiting(deadline=self.deadline, roll_call=self.roll_call, poll=self.deadline / 60, minimum=minimum)

    @property
    def asked_again(self) -> float:
        """A node that does not say which clients it holds is asked again after so many seconds."""
        return self.waiting(1).ask_again

    @property
    def requests(self) -> int:
        """So many times at most a round waits until the deadline: for each model that clients score, too."""
        if not self.scored_by_clients:
            return 2
        models = 1 + len(AVERAGES[self.averages])
        return 2 + 2 * models

    @property
    def scored_by_clients(self) -> bool:
        """Whether clients score models, too."""
        return self.evaluation in ("held out", "fine-tuned", "by clients")

    def sent(self) -> Broadcast | None:
        """What sends an average in place of the model."""
        if not self.broadcast:
            return None
        order: Any = "after" if self.how == "averaged" else self.order
        return Broadcast(next(iter(AVERAGES[self.averages])), self.broadcast, order)

    def module(self) -> nn.Module:
        """The model before the first round."""
        torch.manual_seed(self.seed)
        module = nn.Linear(2, 1) if self.model is None else self.model.build()
        return module.double()

    def federation(self) -> Federation:
        """The federation in a simulation."""
        method, server, local = METHODS[self.method]
        sampling = Uniform(self.asked) if self.how == "rounds" else Uniform()
        personal = Personal()
        if self.method == "personal":
            personal = Personal(("classifier.bias",) if self.table else ("bias",))
        return Federation(
            self.module(),
            self.data(),
            method=method,
            server=server,
            averages=dict(AVERAGES[self.averages]),
            broadcast=self.sent(),
            local=local,
            sampling=sampling,
            evaluation=replace(EVALUATIONS[self.evaluation], every=self.evaluated, last=1),
            engine=ONE_BY_ONE,
            personal=personal,
            loss=squared if self.own_code else None,
            metrics={"error": absolute} if self.own_code else {},
            device="cpu",
            seed=self.seed,
        )

    def held_by(self, node: int) -> list[int]:
        """The clients of a node."""
        return list(range(node, self.clients, self.nodes))

    def data(self) -> FederatedData:
        """The samples of all clients, as the server has them."""
        classes = torch.arange(len(LABELS))
        columns = torch.arange(len(FEATURES))
        return self._data(classes, columns, 1.0)

    def data_of(self, node: int, broken: bool) -> FederatedData:
        """The samples of a node, in its own order of classes and features; if `broken`, none of them can be learned.

        Least squares overflow; of a table, whose softmax does not, no feature is a number.
        """
        chance = np.random.default_rng([self.seed, node])
        classes = torch.from_numpy(chance.permutation(len(LABELS)))
        columns = torch.from_numpy(chance.permutation(len(FEATURES)))
        scale = 1e300 if broken else 1.0
        data = self._data(classes, columns, scale)
        if self.nodes < self.clients:
            data = data.shard(self.held_by(node))
        if broken and self.table:
            assert isinstance(data.train.x, Tensor)
            data.train.x.fill_(torch.nan)  # only now: data are checked when they are made
        return data

    def _data(self, classes: Tensor, columns: Tensor, scale: float) -> FederatedData:
        """The samples, with features times `scale`; of a table with `classes` and `columns` in this order."""
        chance = np.random.default_rng(self.seed)
        count = self.clients * SAMPLES - 1
        x = torch.from_numpy(chance.normal(size=(count + TEST_SAMPLES, 2))) * scale
        y = torch.from_numpy(chance.normal(size=count + TEST_SAMPLES))
        clients = [list(range(begin, min(begin + SAMPLES, count))) for begin in range(0, count, SAMPLES)]
        names: dict[str, Any] = {"task": Regression()}
        if self.table:
            numbers = torch.bucketize(y, torch.tensor([-0.5, 0.5], dtype=y.dtype))
            x = x[:, columns]
            y = torch.argsort(classes)[numbers]
            names = {"classes": len(LABELS), "label_names": tuple(LABELS[number] for number in classes.tolist())}
        test = None
        if self.evaluation.startswith("by"):
            test = (x[count:], y[count:])
        data = FederatedData.from_arrays(x[:count], y[:count], clients, test=test, **names)
        if self.table:
            data = replace(data, feature_names=tuple(FEATURES[column] for column in columns.tolist()))
        return data
