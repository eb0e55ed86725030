"""An actor: a process somewhere in the cluster that trains clients, and sums up their uploads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...client.messages import SCORES, Reply, Request
from ...client.store import StateRows
from ...methods import Aggregation
from ...vector.arrays import Ints, stacked
from ...vector.randomness import no_draws_in_hooks
from ...vector.spaces import ClientState
from ..local_engine import LocalEngine
from ..processes import keep_freed_memory, own_memory, sendable
from ..training import ClientWork
from ..uploads import Uploads, pieces_of
from .object_store import Packed, packed, unpacked


def summed(request: Request, aggregation: Aggregation) -> bool:
    """Whether a request is answered with sums; otherwise the server needs each single upload."""
    return request.job == "probe" or (request.job not in SCORES and not aggregation.keeps_updates)


class Actor:
    """Holds all samples, in memory that it shares with the other actors of its machine, and trains with one thread.

    It answers with an exception of the training in place of raising it: Ray would change its class.
    """

    def __init__(self, training: Packed, data: Packed, engine: LocalEngine, pieces: int, paths: Sequence[str]) -> None:
        self._parts = (training, data)
        self._engine = engine
        self._pieces = pieces
        self._paths = paths

    def ready(self) -> Packed:
        """Get ready to train; None, or the exception that prevents it."""
        try:
            sys.path += [path for path in self._paths if path not in sys.path]  # code of the user's own lies there
            torch.set_num_threads(1)
            keep_freed_memory()
            training, data = self._parts
            self._work = ClientWork(unpacked(training), unpacked(data))
            self._trainer = self._engine.trainer(self._work)
            self._sizes = sizes_of(self._work)
            self._no_draws = no_draws_in_hooks({"Federation.aggregation": self._work.training.aggregation})
        except Exception as error:
            return packed(sendable(error))
        return packed(None)

    def process(self) -> tuple[int, int]:
        """The number of this process, and its memory in bytes, without what it shares."""
        return os.getpid(), own_memory(os.getpid())

    def answer(self, request: Packed, number: int, rows: Packed, *states: Packed) -> Any:
        """The answers of the clients in piece `number` of a request, whose state comes with it, or an exception.

        The state comes in `rows`, or if it is held by the cluster in `states`, one for each client. Then the new state
        of each client follows the answers, as an object of its own.
        """
        new_states: list[Any] = len(states) * [None]
        try:
            answers = self._answers(unpacked(request), number, unpacked(rows), states, new_states)
        except Exception as error:
            answers = sendable(error)
        if not states:
            return packed(answers)
        return (packed(answers), *new_states)

    def _answers(
        self, request: Request, number: int, rows: Any, states: Sequence[Packed], new_states: list[Any]
    ) -> Any:
        """The replies of the clients in a piece, or their sum. If `states` came, new ones are put into `new_states`."""
        training = self._work.training
        places = pieces_of(len(request.ids), self._pieces)[number]
        to_clients = replace(request.only(places), clients=StateRows(rows))
        replies = self._replies(to_clients, places, states)
        if states and request.job == "train":
            replies = _without_states(replies, int(places[0]), new_states)
        if not summed(request, training.aggregation):
            return list(replies)
        uploads = Uploads(request, training.aggregation, training.method, self._sizes, self._pieces, self._no_draws)
        for reply in replies:
            uploads.take(reply)
        return [uploads.partial_sum()]

    def _replies(self, request: Request, places: Ints, states: Sequence[Packed]) -> Iterator[Reply]:
        """The replies of the clients at these places of the whole request, block by block."""
        assert isinstance(self._engine.block, int)
        for rows, block in request.blocks(self._engine.block):
            if states:
                client_state = ClientState(stacked([unpacked(state) for state in states[rows]]))
                block = replace(block, clients=StateRows(client_state))
            yield self._trainer.answer(block, places[rows])


def _without_states(replies: Iterator[Reply], first: int, new_states: list[Any]) -> Iterator[Reply]:
    """The replies without their new client state. That of the client at place `first` is put into `new_states[0]`."""
    for reply in replies:
        for row, place in enumerate(reply.places.tolist()):
            of_client = {name: rows[row] for name, rows in reply.client_state.items()}
            new_states[place - first] = packed(of_client)
        yield replace(reply, client_state=ClientState({}))


def sizes_of(work: ClientWork) -> Ints:
    """The number of samples of each client by its number, 0 for clients whose samples are elsewhere."""
    sizes = np.zeros(work.numbers[-1] + 1, dtype=np.int64)
    sizes[work.numbers] = work.data.sizes
    return sizes
