"""The engine of one machine: clients one at a time or stacked, in one process or several, compiled or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import current_process
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import torch
from annotated_types import Interval

from ..client import Trainer
from ..client.messages import Executor, Job, Reply
from ..settings.errors import check
from ..system.machine import core_count
from .base import Engine
from .buffers import Buffers, StartMethod
from .compiled import compile_steps
from .gradients import MemoryFormat
from .in_process import InProcess
from .processes import keep_freed_memory, threads
from .training import ClientWork
from .workers import Workers, can_fork

Kind = Literal["auto", "sequential", "vectorised"]
Auto = Literal["auto"]

# The bounds are those of the largest machines. They do not depend on this one: the run may go on with another.
Processors: TypeAlias = Annotated[int, Interval(ge=1, le=1024)]
"""A number of processes or threads."""
BlockSize: TypeAlias = Annotated[int, Interval(ge=1, le=65_536)]
"""A number of clients that are stacked."""

PER_CORE = 8
"""At most so many workers are started for each core."""


@dataclass(frozen=True)
class LocalEngine(Engine, name="local"):
    """Trains the clients of a round on this machine.

    Any setting but `start` that is `"auto"` is chosen by a short measurement.
    """

    kind: Kind = field(default="auto", metadata={"chooses": True})
    """`"sequential"` trains one client at a time, `"vectorised"` stacks `block` clients"""
    workers: Processors | Auto = "auto"
    """the number of processes, one thread each (on the CPU). With 1 this process trains, with `threads` threads. At
    most 8 for each core are started, since the results do not depend on their number"""
    block: BlockSize | Auto = "auto"
    """how many clients are stacked"""
    compile: bool | Auto = "auto"
    """whether stacked steps become one compiled function"""
    memory_format: MemoryFormat | Auto = "auto"
    """the memory format of images"""
    threads: Processors | Auto = "auto"
    """the number of threads of one process that trains alone"""
    start: StartMethod | Auto = "auto"
    """how worker processes begin. `"fork"` (Linux) is immediate, and workers share this process's data. `"spawn"` (any
    system) starts a new Python and sends it all that it needs, which must be picklable. `"auto"` is `"fork"` where it
    is safe: on Linux, where PyTorch sees no GPU"""

    def __post_init__(self) -> None:
        stacked_only = self.kind == "sequential" and (self.compile is True or self.block not in ("auto", 1))
        check(not stacked_only, "LocalEngine.kind", self.kind, 'compile and block need kind = "vectorised"')

    @property
    def resolved(self) -> bool:
        """Whether no setting is left to be measured."""
        return "auto" not in (self.kind, self.workers, self.block, self.compile, self.memory_format, self.threads)

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """An executor as in `Engine.open`. Steps are compiled before any worker is forked, and only for long runs."""
        from .auto import resolve  # it needs this class

        if current_process().daemon and self.workers != 1:
            requirement = "must be 1 in a process of a pool, which can't start others"
            check(self.workers == "auto", "LocalEngine.workers", self.workers, requirement)
            return replace(self, workers=1).open(work, rounds)
        engine, notes = resolve(self, work, rounds)
        try:
            return engine._open(work), notes
        except RuntimeError:
            if engine == self:
                raise
        # What is known may be of an earlier code of the model or the method, which could be stacked.
        engine, notes = resolve(self, work, rounds, renewed=True)
        return engine._open(work), notes

    def settled(self, began: Mapping[str, Any]) -> Engine:
        settings = asdict(self)
        if began.keys() != settings.keys():
            return self
        for name, value in settings.items():
            if value not in ("auto", began[name]):
                return self
        return replace(self, **began)

    def trainer(self, work: ClientWork) -> Trainer:
        """A trainer with the settings of this engine, which must be resolved.

        Raises `SettingError` if the `precision` does not fit the model's type.
        """
        dtype = work.training.sharing.layout.dtype
        if self.precision != "full":
            requirement = f"needs a model of float32, and this one is of {dtype}"
            check(dtype == torch.float32, "LocalEngine.precision", self.precision, requirement)
        assert self.memory_format != "auto"
        stacked = self.kind == "vectorised"
        trainer = work.trainer(stacked=stacked, memory_format=self.memory_format, precision=self.precision)
        if self.compile is True and isinstance(self.block, int):
            block = min(self.block, len(work.numbers))
            compile_steps(trainer, block)
            tuner = trainer.evaluator.tuner
            if tuner is not None:
                compile_steps(tuner, block)
        return trainer

    def _open(self, work: ClientWork) -> Executor:
        """The executor of these settings, which must be resolved."""
        assert isinstance(self.block, int) and isinstance(self.workers, int) and isinstance(self.threads, int)
        if work.on_cpu:
            keep_freed_memory()

        # 1. Let one client train: this compiles the steps, and gives the shapes of the answers.
        trainer = self.trainer(work)
        replies: dict[Job, Reply] = {}
        with threads(self.threads):
            request, probed = work.first(trainer, work.numbers[:1])
            replies["train"] = trainer.answer(request, np.arange(1))
            if probed is not None:
                replies["probe"] = probed
            if trainer.evaluator.tuner is not None:
                trainer.answer(replace(request, job="tune"), np.arange(1))
        if self.workers == 1:
            return InProcess(trainer, block=self.block, threads=self.threads, described=asdict(self))

        # 2. Workers share memory for one block each, or for all clients of a round if it is not too much.
        check(work.on_cpu, "LocalEngine.workers", self.workers, "worker processes train on the CPU: use workers = 1")
        start = self._start_method()
        if start == "spawn":
            work.training.check_picklable()
        else:
            no_gpu = "forked processes can't train where PyTorch sees a GPU: choose 'spawn', or hide the GPU from it"
            check(not torch.accelerator.is_available(), "LocalEngine.start", start, no_gpu)
        count = min(self.workers, PER_CORE * core_count())
        clients = len(work.numbers)
        block = min(self.block, clients)
        buffers = Buffers.like(
            request,
            replies,
            start=start,
            scored=trainer.evaluator.shapes(request.sent),
            least=min(count * block, clients),
            most=max(map(len, work.training.sample)),
        )

        # 3. A forked worker inherits the trainer, with its compiled steps; a spawned one makes its own.
        make = partial(_itself, trainer)
        if start == "spawn":
            make = partial(self.trainer, work)
        return Workers(trainer, make, count=count, block=block, buffers=buffers, described=asdict(self))

    def _start_method(self) -> StartMethod:
        """The setting `start`, or what "auto" means on this machine."""
        if self.start != "auto":
            return self.start
        if can_fork():
            return "fork"
        return "spawn"


def _itself(trainer: Trainer) -> Trainer:
    return trainer
