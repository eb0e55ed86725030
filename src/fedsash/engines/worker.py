"""One worker process, seen from both ends of its pipe."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from ..client import Trainer
from ..settings.resolve import libraries_first
from ..system.subprocesses import STOPS, ending
from ..vector.arrays import Ints
from ..vector.vector_files import let_go
from .buffers import Buffers, Contents, RequestHeader
from .processes import keep_freed_memory, own_memory, sendable, signals_wait

Block = tuple[int, Ints]
"""Clients of a round that one process trains together: the place of the first one, and the clients' numbers."""


class Worker:
    """A process that makes its own trainer with `make` and answers blocks, with one thread.

    `left` are the blocks that it has been asked and has not answered. A process that this one forks later inherits its
    `pipe`; so `others`, the pipes of the workers so far, are closed there. It ignores signals that ask to stop: this
    process decides when it ends, and it ends with this process.
    """

    def __init__(
        self,
        number: int,
        make: Callable[[], Trainer],
        buffers: Buffers,
        others: Sequence[connection.Connection],
    ) -> None:
        self.number = number
        self.left = list[Block]()
        context: Any = torch.multiprocessing.get_context(buffers.start)
        self.pipe, workers_end = context.Pipe()
        # Inherited pipe ends would keep the pipes open after this process dies. A spawned process inherits none.
        inherited: list[connection.Connection] = []
        if buffers.start == "fork":
            inherited = [self.pipe, *others]
        self._process = context.Process(
            target=_serve, args=(workers_end, inherited, make, buffers), name=f"worker {number}", daemon=True
        )
        with warnings.catch_warnings(), libraries_first(), signals_wait():
            warnings.simplefilter("ignore", DeprecationWarning)  # the child sets its number of threads itself
            self._process.start()
            # At exit, Python would ask it to end by SIGTERM, and wait for ever.
            self.close = Finalize(self, _end, (self._process, self.pipe), exitpriority=0)
        workers_end.close()

    def ask(self, header: RequestHeader, blocks: list[Block]) -> None:
        """Ask it to answer blocks of a request. If it is dead, `answer` says so."""
        self.left = list(blocks)
        # Plain values only: of anything else, pickle's C code imports the class, and an interrupt in an import comes
        # out as a PicklingError.
        plain_blocks = [(first, ids.tolist()) for first, ids in blocks]
        message = (tuple(header), plain_blocks)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(message)

    def answer(self) -> tuple[int, Contents] | None:
        """The first place of the block that it has answered next, and its uploads; None if the process is dead.

        Raises an exception of the training.
        """
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            return None
        if isinstance(answer, BaseException):
            raise answer
        first, uploads = answer
        self.left = [block for block in self.left if block[0] != first]
        return first, uploads

    def end(self) -> str:
        """End the process, and say why it had ended if it had."""
        self._process.join(timeout=1)
        why = ending(self._process.exitcode)
        self.close()
        return why

    def memory(self) -> int:
        """Its own memory in bytes; 0 if the system does not tell it."""
        return own_memory(self._process.pid)


def _end(process: Any, pipe: connection.Connection) -> None:
    """End a process at once, and wait until the system has removed it."""
    pipe.close()
    process.kill()
    process.join()


def _serve(
    pipe: connection.Connection,
    inherited: list[connection.Connection],
    make: Callable[[], Trainer],
    buffers: Buffers,
) -> None:
    """The main loop of a worker: answer the blocks that come through the pipe, until the other end closes it."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    for other in inherited:
        other.close()
    let_go()
    torch.set_num_threads(1)
    keep_freed_memory()
    trainer = make()
    while True:
        try:
            fields, blocks = pipe.recv()
            header = RequestHeader(*fields)
            for first, ids in blocks:
                uploads = _answer_block(header, first, np.array(ids, dtype=np.int64), trainer, buffers)
                pipe.send((first, uploads))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:  # of the training: the other process raises it
            pipe.send(sendable(error))


def _answer_block(header: RequestHeader, first: int, ids: Ints, trainer: Trainer, buffers: Buffers) -> Contents:
    """Answer the request of some clients, from and into the buffers' rows from `first` on; returns the uploads."""
    rows = slice(first, first + len(ids))
    reply = trainer.answer(buffers.request(header, rows, ids), np.arange(len(ids)))
    return buffers.put_reply(header.job, rows, reply)
