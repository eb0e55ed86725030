"""The engine: how a round's clients are trained on this machine. It changes the speed, not the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..batches import Ints
from ..checks import check
from ..data.federated import FederatedData
from ..layout import Layout
from ..local import Client, Trainer
from ..methods import Method, Vectors
from ..methods.base import overrides
from . import workers
from .compiled import compile_steps
from .direct import Direct, Job, Trained, threads, work
from .gradients import Loss, MemoryFormat, OneByOne, Stacked

BUFFER_BYTES = 2**29
"""What workers and this process share at most for the vectors of a round's clients."""


@dataclass(frozen=True)
class Engine:
    """How the clients of a round are trained.

    `kind`: `"sequential"` trains one client at a time, `"vectorised"` stacks `block` clients. `workers`: the number of
    processes, one thread each (CPU, Linux); 1 is this process alone, with `threads` threads. `compile` turns the
    stacked steps into one compiled function. `memory_format` is that of images. Whatever is `"auto"` is chosen by a
    short measurement.
    """

    kind: Literal["auto", "sequential", "vectorised"] = "auto"
    workers: int | Literal["auto"] = "auto"
    block: int | Literal["auto"] = "auto"
    compile: bool | Literal["auto"] = "auto"
    memory_format: MemoryFormat | Literal["auto"] = "auto"
    threads: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        for name in ("workers", "block", "threads"):
            value = getattr(self, name)
            check(value == "auto" or value >= 1, f"Engine.{name}", value, 'must be at least 1, or "auto"')
        stacked_only = self.kind == "sequential" and (self.compile is True or self.block not in ("auto", 1))
        check(not stacked_only, "Engine.kind", self.kind, 'compile and block go with kind = "vectorised"')

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to choose."""
        return "auto" not in (self.kind, self.workers, self.block, self.compile, self.memory_format, self.threads)


class Executor(Protocol):
    """Trains the clients of a round and yields them in order."""

    def work(
        self, job: Job, round: int, ids: Ints, sent: Tensor, shared: Vectors, mine: Vectors
    ) -> Iterator[Trained]: ...

    def memory(self) -> int: ...

    def close(self) -> None: ...


@dataclass
class First:
    """What clients receive and remember in a first round, what they answer to a probe, and how to `train` them."""

    sent: Tensor
    shared: Vectors
    mine: Vectors
    probed: Vectors
    train: Callable[[], Trained]


@dataclass(frozen=True)
class Work:
    """What there is to train: everything about a federation that an engine needs.

    `sample` are the clients of the first rounds, `dropout` says whether the model draws dropout.
    """

    module: nn.Module
    loss: Loss
    method: Method
    client: Client
    data: FederatedData
    seed: int
    dropout: bool
    sample: list[Ints]

    def trainer(self, engine: Engine) -> Trainer:
        """A trainer with the engine's gradients."""
        gradients = OneByOne if engine.kind == "sequential" else Stacked
        memory_format: MemoryFormat = "contiguous" if engine.memory_format == "contiguous" else "channels_last"
        gradient = gradients(self.module, self.loss, self.method, memory_format, self.dropout)
        trainer = Trainer(self.method, self.client, self.data, gradient, Layout(self.module), self.seed)
        if engine.compile is True and isinstance(engine.block, int):
            compile_steps(trainer, engine.block)
        return trainer

    def first(self, trainer: Trainer, ids: Ints) -> First:
        """The beginning of a round 0 of these clients, from the model as it is; nothing of it is kept."""
        layout = Layout(self.module)
        w = layout.flatten(self.module)
        sent, shared = self.method.send(w, self.method.shared(w, layout), 0)
        mine = {name: value.expand(len(ids), *value.shape).clone() for name, value in self.method.mine(w).items()}
        probed: Vectors = {}
        if overrides(self.method, "probe"):
            probed = work("probe", trainer, 0, ids, sent, shared, mine, 0).upload
            shared = shared | {name: value.mean(0) for name, value in probed.items()}
        return First(sent, shared, mine, probed, lambda: work("train", trainer, 0, ids, sent, shared, mine, 0))

    def steps(self) -> Ints:
        """How many local steps each client takes in a round, `[N]`."""
        w = Layout(self.module).flatten(self.module)
        return self.client.batches(self.data.clients, self.seed, w).steps(self.client.epochs)

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
        layout = Layout(self.module)
        return layout.size * layout.dtype.itemsize


def start(engine: Engine, task: Work) -> Executor:
    """Start a resolved engine; what is to be compiled is compiled here, before any worker is forked."""
    assert isinstance(engine.block, int) and isinstance(engine.workers, int) and isinstance(engine.threads, int)
    trainer = task.trainer(engine)
    if task.on_cpu:
        workers.keep_freed_memory()
    with threads(engine.threads):
        first = task.first(trainer, np.arange(1))
        trained = first.train()
    if engine.workers == 1:
        return Direct(trainer, engine.block, engine.threads)
    if not (task.on_cpu and workers.available()):
        raise ValueError(f"Engine.workers = {engine.workers}: worker processes need Linux and the CPU; use workers = 1")
    uploads = {"train": trained.upload, "probe": first.probed}
    rows = [*trained.upload.values(), *first.probed.values(), *trained.mine.values()]
    row = sum(v[0].numel() * v.element_size() for v in rows)
    per_round = max(map(len, task.sample))
    capacity = max(engine.workers * engine.block, min(per_round, BUFFER_BYTES // row))
    buffers = workers.Buffers.like(first.sent, first.shared, trained.mine, uploads, capacity)
    return workers.Workers(trainer, engine.workers, engine.block, buffers)


def pick_device(name: str) -> torch.device:
    """The device of that name; `"auto"` is the first of CUDA, MPS and the CPU that is there."""
    if name != "auto":
        try:
            return torch.zeros((), device=name).device
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device = {name!r}: not available here ({str(error).splitlines()[0]})") from None
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
