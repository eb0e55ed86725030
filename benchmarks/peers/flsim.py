"""FLSim: its `SyncTrainer` with weighted averages, without reports; one process, PyTorch on both cores.

Batches are made once for a client, as FLSim's own data loader does, and dealt in another order each time. Its
configurations are dataclasses that Python 3.11 takes only if they have a hash.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import random
from collections.abc import Iterator
from typing import Any

import torch

from .clock import Clock
from .modules import loss, module, parameters
from .works import PER_ROUND, Given

plain = dataclasses.dataclass


def hashed(cls: Any = None, **settings: Any) -> Any:
    """`dataclass`, with a hash for FLSim's classes."""
    if cls is None:
        return functools.partial(hashed, **settings)
    return plain(cls, **settings, **{"unsafe_hash": True} if cls.__module__.startswith("flsim") else {})


dataclasses.dataclass = hashed

from flsim.clients.base_client import ClientConfig  # noqa: E402
from flsim.data.data_provider import IFLDataProvider, IFLUserData  # noqa: E402
from flsim.interfaces.model import IFLModel  # noqa: E402
from flsim.optimizers.local_optimizers import LocalOptimizerSGDConfig  # noqa: E402
from flsim.servers.sync_servers import SyncServerConfig  # noqa: E402
from flsim.trainers.sync_trainer import SyncTrainer, SyncTrainerConfig  # noqa: E402
from flsim.utils.simple_batch_metrics import FLBatchMetrics  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

dataclasses.dataclass = plain


class Model(IFLModel):
    """A module as FLSim wants it."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.net = net

    def fl_forward(self, batch: Any) -> FLBatchMetrics:
        x, y = batch
        answers = self.net(x)
        return FLBatchMetrics(
            loss=loss(answers, y), num_examples=len(x), predictions=answers.detach(), targets=y, model_inputs=[]
        )

    def fl_get_module(self) -> torch.nn.Module:
        return self.net

    def get_num_examples(self, batch: Any) -> int:
        return len(batch[0])

    def fl_create_training_batch(self, **_: Any) -> None: ...

    def fl_cuda(self) -> None: ...

    def get_eval_metrics(self, batch: Any) -> None: ...


class User(IFLUserData):
    """A client's batches."""

    def __init__(self, x: Any, y: Any, size: int) -> None:
        self.batches = list(zip(*(torch.from_numpy(part.copy()).split(size) for part in (x, y)), strict=True))
        self.size = len(x)

    def num_train_examples(self) -> int:
        return self.size

    def num_train_batches(self) -> int:
        return len(self.batches)

    def train_data(self) -> Iterator[Any]:
        return iter(self.batches)

    def num_eval_examples(self) -> int:
        return 0

    num_eval_batches = num_eval_examples

    def eval_data(self) -> Iterator[Any]:
        return iter(())


class Users(IFLDataProvider):
    """All clients; a client's batches are made when it is first asked for."""

    def __init__(self, given: Given) -> None:
        self.get_train_user = functools.cache(lambda number: User(*given.client(number), given.work.batch))
        self.clients = range(len(given.clients))

    def train_user_ids(self) -> list[int]:
        return list(self.clients)

    def num_train_users(self) -> int:
        return len(self.clients)

    def get_train_user(self, user_index: int) -> User: ...

    def train_users(self) -> Iterator[User]:
        return map(self.get_train_user, self.clients)

    def eval_users(self) -> Iterator[User]:
        return iter(())

    test_users = eval_users


def run(given: Given, clock: Clock, seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    logging.disable(logging.INFO)
    work = given.work
    net = module(given)

    class Timed(SyncTrainer):
        """Tells the clock of its rounds."""

        def _train_one_round(self, *, clients: Any, **others: Any) -> None:
            super()._train_one_round(clients=clients, **others)
            samples = sum(client.dataset.num_train_examples() for client in clients)
            clock.round(samples * work.epochs, parameters(net))

    client = ClientConfig(
        epochs=work.epochs,
        optimizer=LocalOptimizerSGDConfig(lr=work.lr, momentum=work.momentum),
        shuffle_batch_order=True,
    )
    settings = SyncTrainerConfig(
        epochs=1e6,
        users_per_round=PER_ROUND,
        do_eval=False,
        report_train_metrics=False,
        client=client,
        server=SyncServerConfig(),
    )
    users = Users(given)
    Timed(model=Model(net), cuda_enabled=False, **OmegaConf.structured(settings)).train(
        data_provider=users, metrics_reporter=None, num_total_users=len(users.clients), distributed_world_size=1
    )
