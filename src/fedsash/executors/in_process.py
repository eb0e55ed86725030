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

WATCHED = 20
"""In so many rounds of a run the processor's time is watched."""


class InProcess(Executor):
    """Answers in this process with `threads` threads, one block of `block` clients after another."""

    def __init__(
        self, trainer: Trainer, *, block: int, threads: int, described: dict[str, Any], spent: Spent | None = None
    ) -> None:
        self.trainer = trainer
        self.threads = threads
        self.server_threads = threads
        self._block = block
        self._described = described
        self._spent = spent
        self._watched = 0

    def work(self, request: Request) -> Answers:
        # To read the processor's time may take as long as a small client's steps, so it is read while it is watched.
        watched = self._spent is not None and request.job == "train" and self._watched < WATCHED
        seconds = 0.0
        for rows, block in request.blocks(self._block):
            if watched:
                seconds -= time.process_time()
            with threads(self.threads):
                reply = self.trainer.answer(block, np.arange(rows.start, rows.stop))
            if watched:
                seconds += time.process_time()
            yield reply
        if watched and self._spent is not None:
            self._watched += 1
            self._spent(seconds)

    def described(self) -> dict[str, Any]:
        return self._described
