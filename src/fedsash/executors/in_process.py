"""The executor that trains in this process: one client at a time, or one stacked block at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..exchange import Answers, Executor, Request
from ..local import Trainer
from .devices import threads

Spent: TypeAlias = Callable[[float], object]
"""Is told what the local steps of a round took of the processor in the busiest process, in seconds."""


class InProcess(Executor):
    """Answers in this process with `threads` threads, one block of `block` clients after another."""

    def __init__(
        self, trainer: Trainer, *, block: int, threads: int, described: dict[str, Any], spent: Spent | None = None
    ) -> None:
        self._trainer, self._block, self._described, self._told = trainer, block, described, spent
        self.threads = self.server_threads = threads

    def work(self, request: Request) -> Answers:
        size = self._block if request.job != "evaluate" else len(request.ids)  # batches may mix clients' samples
        spent = 0.0
        for first in range(0, len(request.ids), size):
            block = request if size >= len(request.ids) else request.only(slice(first, first + size))
            began = time.process_time()
            with threads(self.threads):
                reply = self._trainer.answer(block, np.arange(first, first + len(block.ids)))
            spent += time.process_time() - began
            yield reply
        if self._told is not None and request.job == "train":
            self._told(spent)

    def described(self) -> dict[str, Any]:
        return self._described
