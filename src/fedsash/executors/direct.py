"""Training in this process: one client at a time, or a stacked block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..exchange import Answers, Executor, Request
from ..local import Trainer


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """PyTorch with `count` threads (None: as many as it has), and with as many as before afterwards."""
    before = torch.get_num_threads()
    if count is None or before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Direct(Executor):
    """Answers in this process with `count` threads, a block of clients after the other."""

    def __init__(self, trainer: Trainer, block: int, count: int, described: dict[str, Any]) -> None:
        self._trainer, self._block, self.threads, self._described = trainer, block, count, described

    def work(self, request: Request) -> Answers:
        size = self._block if request.job != "evaluate" else len(request.ids)  # full batches, whoever's samples
        for first in range(0, len(request.ids), size):
            block = request.only(slice(first, first + size))
            with threads(self.threads):
                reply = self._trainer.answer(block, np.arange(first, first + len(block.ids)))
            yield reply

    def described(self) -> dict[str, Any]:
        return self._described
