"""The executor that trains in this process: one client at a time, or one stacked block at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..client import Trainer
from ..client.messages import Answers, Executor, Request
from .processes import threads


class InProcess(Executor):
    """Answers in this process with `threads` threads, one block of `block` clients after another."""

    def __init__(self, trainer: Trainer, *, block: int, threads: int, described: dict[str, Any]) -> None:
        self.trainer = trainer
        self.threads = threads
        self.server_threads = threads
        self._block = block
        self._described = described

    def work(self, request: Request) -> Answers:
        for rows, block in request.blocks(self._block):
            with threads(self.threads):
                reply = self.trainer.answer(block, np.arange(rows.start, rows.stop))
            yield reply

    def described(self) -> dict[str, Any]:
        return self._described
