"""What there is to train, as values that may travel to another process."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from torch import nn

from ..aggregation import Aggregation
from ..basics.arrays import Ints
from ..basics.errors import check, one_line
from ..basics.layout import Layout
from ..data.federated import FederatedData, Problem
from ..evaluation import Scorer, Split
from ..exchange import Reply, Request
from ..local import LocalTraining, Trainer
from ..methods import Method
from ..tasks import Loss
from .dropout import draws_dropout
from .gradients import MemoryFormat, OneByOne, Stacked


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """All that those who train must know of a federation, but for the samples.

    `batch` is how many samples pass through a model at once when it is evaluated, `scored` on which of their samples
    clients do that. `sample` are the clients of the first rounds, to measure with.
    """

    module: nn.Module
    problem: Problem
    loss: Loss
    method: Method
    local: LocalTraining
    aggregation: Aggregation
    seed: int
    batch: int
    scored: tuple[Split, ...]
    sample: tuple[Ints, ...]

    def check_picklable(self) -> None:
        """Raise `ValueError` if a part of it can't be sent to a process that does not share this one's memory."""
        for field in fields(self):
            try:
                pickle.dumps(getattr(self, field.name))
            except Exception as error:  # which one it is depends on the object
                right = f"can't be sent to another process ({one_line(error)}): define it at the top of a module"
                check(False, f"Federation.{field.name}", getattr(self, field.name), right)


@dataclass(frozen=True, eq=False)
class ClientWork:
    """A training, and the samples that it has here."""

    training: Training
    data: FederatedData

    def trainer(self, *, stacked: bool = False, memory_format: MemoryFormat = "contiguous") -> Trainer:
        """A trainer of one client at a time, or of stacked ones."""
        t = self.training
        make = Stacked if stacked else OneByOne
        gradient = make(
            module=t.module, loss=t.loss, method=t.method, memory_format=memory_format, dropout=self.draws_dropout
        )
        return Trainer(
            method=t.method,
            local=t.local,
            data=self.data,
            gradient=gradient,
            scorer=Scorer(t.module, t.loss, t.problem, t.batch),
            layout=Layout(t.module),
            seed=t.seed,
            normalises=t.aggregation.normalises,
            splits=t.scored,
        )

    def first(self, trainer: Trainer, ids: Ints) -> tuple[Request, Reply | None]:
        """A request to train in round 0, from the model as it is, and what its clients have answered to a probe."""
        layout, method = Layout(self.training.module), self.training.method
        w = layout.flatten(self.training.module)
        sent, server = method.send(w, method.server_state(w, layout), 0)
        client_state = {
            name: value.expand(len(ids), *value.shape).clone() for name, value in method.client_state(w).items()
        }
        request = Request(
            job="train",
            round=0,
            ids=ids,
            sent=sent,
            server_state=server,
            client_state=client_state,
            last=np.zeros_like(ids),
        )
        if "probe" not in method.overridden:
            return request, None
        probed = trainer.answer(replace(request, job="probe"), np.arange(len(ids)))
        means = {name: value.mean(0) for name, value in probed.upload.items()}
        return replace(request, server_state=server | means), probed

    @cached_property
    def draws_dropout(self) -> bool:
        """Whether the model draws dropout, tried on one sample."""
        index = torch.from_numpy(self.data.clients[0][:1]).to(self.data.train.x.device)
        model = copy.deepcopy(self.training.module).train()
        x = self.data.transform.prepare(self.data.train.x[index]).to(Layout(model).dtype)
        return draws_dropout(lambda: model(x))

    @property
    def numbers(self) -> Ints:
        """The numbers of the clients whose samples are here."""
        return np.arange(len(self.data.clients)) if self.data.numbers is None else self.data.numbers

    @property
    def steps(self) -> Ints:
        """How many local steps each of these clients takes in a round."""
        return self.training.local.workload(self.data.sizes).steps

    @property
    def on_cpu(self) -> bool:
        """Whether the data, hence the training, are on the CPU."""
        return self.data.train.x.device.type == "cpu"

    @property
    def images(self) -> bool:
        """Whether the samples are images, which can lie in memory in two ways."""
        return self.data.train.x.dim() == 4

    @property
    def model_bytes(self) -> int:
        """The size of one model vector."""
        layout = Layout(self.training.module)
        return layout.size * layout.dtype.itemsize
