"""The executor that trains in this process: one client at a time, or one stacked block at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..exchange import Answers, Executor, Request
from ..local import Trainer
from .devices import threads


class InProcess(Executor):
    """Answers in this process with `threads` threads, one block of `block` clients after another."""

    def __init__(self, trainer: Trainer, *, block: int, threads: int, described: dict[str, Any]) -> None:
        self.trainer, self._block, self.threads, self._described = trainer, block, threads, described

    def work(self, request: Request) -> Answers:
        size = self._block if request.job != "evaluate" else len(request.ids)  # batches may mix clients' samples
        for first in range(0, len(request.ids), size):
            block = request.only(slice(first, first + size))
            with threads(self.threads):
                reply = self.trainer.answer(block, np.arange(first, first + len(block.ids)))
            yield reply

    def described(self) -> dict[str, Any]:
        return self._described
