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
        self.trainer, self._block, self._described, self._told = trainer, block, described, spent
        self.threads = self.server_threads = threads

    def work(self, request: Request) -> Answers:
        spent = 0.0
        for rows, block in request.blocks(self._block):
            began = time.process_time()
            with threads(self.threads):
                reply = self.trainer.answer(block, np.arange(rows.start, rows.stop))
            spent += time.process_time() - began
            yield reply
        if self._told is not None and request.job == "train":
            self._told(spent)

    def described(self) -> dict[str, Any]:
        return self._described
