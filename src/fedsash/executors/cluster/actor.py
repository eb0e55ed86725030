"""An actor: a process somewhere in the cluster that trains clients, and sums up their uploads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...aggregation import Aggregation
from ...aggregation.upload_sums import UploadSums
from ...basics.arrays import Ints
from ...exchange import SCORES, Reply, Request
from ..devices import own_memory
from ..local_engine import LocalEngine
from ..training import ClientWork
from ..worker import keep_freed_memory, sendable
from .packing import Packed, packed, unpacked


def summed(request: Request, aggregation: Aggregation) -> bool:
    """Whether a request is answered with sums; otherwise the server needs each single upload."""
    return request.job == "probe" or (request.job not in SCORES and not aggregation.keeps_updates)


class Actor:
    """Holds all samples, in memory that it shares with the other actors of its machine, and trains with one thread.

    It answers with an exception of the training in place of raising it: Ray would change its class.
    """

    def __init__(self, training: Packed, data: Packed, engine: LocalEngine, pieces: int, paths: Sequence[str]) -> None:
        self._parts, self._engine, self._pieces, self._paths = (training, data), engine, pieces, paths

    def ready(self) -> Packed:
        """Get ready to train; None, or the exception that prevents it."""
        try:
            sys.path += [path for path in self._paths if path not in sys.path]  # code of the user's own lies there
            torch.set_num_threads(1)
            keep_freed_memory()
            training, data = map(unpacked, self._parts)
            self._work = ClientWork(training, data)
            self._trainer = self._engine.trainer(self._work)
            self._sizes = sizes_of(self._work)
        except Exception as error:
            return packed(sendable(error))
        return packed(None)

    def process(self) -> tuple[int, int]:
        """The number of this process, and its memory in bytes, without what it shares."""
        return os.getpid(), own_memory(os.getpid())

    def answer(self, request: Packed, number: int, client_state: Packed) -> Packed:
        """The answers of the clients in piece `number` of a request, whose state comes with it, or an exception."""
        try:
            return packed(self._answers(unpacked(request), number, unpacked(client_state)))
        except Exception as error:
            return packed(sendable(error))

    def _answers(self, request: Request, number: int, client_state: Any) -> list[Any]:
        training = self._work.training
        whole = UploadSums.of(request, training.aggregation, training.method, self._sizes, self._pieces)
        places = whole.places_of(number)
        replies = self._replies(replace(request.only(places), client_state=client_state), places)
        if not summed(request, training.aggregation):
            return list(replies)
        _, sums = whole.piece(number)
        for reply in replies:
            sums.take(reply)
        return [sums.partial_sum()]

    def _replies(self, request: Request, places: Ints) -> Iterator[Reply]:
        block = self._engine.block if request.job != "evaluate" else len(places)  # batches may mix clients' samples
        assert isinstance(block, int)
        for first in range(0, len(places), block):
            rows = slice(first, first + block)
            yield self._trainer.answer(request.only(rows), places[rows])


def sizes_of(work: ClientWork) -> Ints:
    """The number of samples of each client by its number, 0 for clients whose samples are elsewhere."""
    sizes = np.zeros(work.numbers[-1] + 1, dtype=np.int64)
    sizes[work.numbers] = work.data.sizes
    return sizes
