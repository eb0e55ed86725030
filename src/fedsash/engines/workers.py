"""The executor with worker processes on one machine: one thread each, vectors in shared memory."""

from __future__ import annotations

import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

import numpy as np
import torch

from ..client import Trainer
from ..client.messages import Answer, Answers, Executor, Reply, Request
from ..settings.errors import WorkerError
from ..vector.vector_files import rested
from .buffers import Buffers, Contents, RequestHeader
from .processes import return_freed_memory, threads
from .worker import Block, Worker

log = logging.getLogger("fedsash")

REPLACED = 2
"""How often each worker is replaced in one request."""


def can_fork() -> bool:
    """Whether forked processes can train here: on Linux without a GPU.

    Where there is a GPU, the first gradient starts threads of PyTorch that a forked process lacks and needs.
    """
    return sys.platform == "linux" and not torch.accelerator.is_available()


def dealt(costs: Sequence[int], count: int) -> list[list[int]]:
    """The numbers of the blocks of each of `count` workers, ascending.

    The longest block left goes to the worker with the least to do. The order is stable: `costs` alone decide.
    """
    loads = [0] * count
    blocks = [list[int]() for _ in range(count)]
    longest_first = sorted(range(len(costs)), key=lambda block: -costs[block])
    for block in longest_first:
        worker = loads.index(min(loads))
        loads[worker] += costs[block]
        blocks[worker].append(block)
    return [sorted(of_worker) for of_worker in blocks]


class Workers(Executor):
    """Answers in `count` processes, in blocks of `block` clients.

    Each process makes its own trainer with `make`. The vectors of a round are exchanged through `buffers`. Blocks are
    assigned by how long they take, longest first, and answered in the round's order. `trainer` belongs to this
    process and trains no client. If a request is abandoned, the processes may still work on it; so they are ended, and
    the next request starts new ones.

    If a process dies, a new one takes its place and answers the clients that it has left, at most twice for each worker
    in one request; then `WorkerError` is raised.
    """

    server_threads = 1
    """A second thread waits for more work for some milliseconds, on the core of a worker that begins the next round."""

    def __init__(
        self,
        trainer: Trainer,
        make: Callable[[], Trainer],
        *,
        count: int,
        block: int,
        buffers: Buffers,
        described: dict[str, Any],
    ) -> None:
        self._trainer = trainer
        self._make = make
        self._count = count
        self._block = block
        self._buffers = buffers
        self._described = described
        self._workers: dict[int, Worker] = {}
        self._request: Request | None = None
        self._deaths: Counter[int] = Counter()
        self._start()

    def work(self, request: Request) -> Answers:
        if self._request is not None or len(self._workers) < self._count:  # given up, or interrupted as it started
            self.close()
            self._start()
        self._request = request
        self._deaths.clear()
        try:
            with threads(1):  # the workers use all cores; a second thread here would wait for a core in every sum
                header = self._buffers.put(request)
                for begin in range(0, len(request.ids), self._buffers.capacity):
                    wave = request.only(slice(begin, begin + self._buffers.capacity))
                    yield from self._wave(request, header, wave, begin)
            self._request = None
        finally:
            if self._request is request:
                self.close()

    def described(self) -> dict[str, Any]:
        return self._described

    def memory(self) -> int:
        """The memory of the workers in bytes, without the memory that they share; they do not return freed memory."""
        return sum(worker.memory() for worker in self._workers.values())

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers = {}
        self._request = None

    def _start(self) -> None:
        return_freed_memory()  # what a measurement of engines has left, which forked processes would inherit
        try:
            for number in range(self._count):
                self._start_one(number)
        except BaseException:
            self.close()
            raise

    def _start_one(self, number: int) -> Worker:
        """Start the worker of this number, in place of the one before."""
        if self._buffers.start == "fork":
            rested()
        others = [worker.pipe for worker in self._workers.values() if worker.number != number]
        worker = Worker(number, self._make, self._buffers, others)
        self._workers[number] = worker
        return worker

    def _wave(self, request: Request, header: RequestHeader, wave: Request, begin: int) -> Iterator[Answer]:
        """Answer for as many clients as fit into the buffers; `begin` is the place of the first one."""
        # 1. Cut the clients into blocks, and ask the workers.
        self._buffers.put_clients(wave)
        size = self._block
        if request.job == "evaluate":  # a batch may mix samples of several clients: blocks are as large as possible
            size = math.ceil(len(wave.ids) / self._count)
        blocks = [(first, wave.ids[first : first + size]) for first in range(0, len(wave.ids), size)]
        for worker, blocks_of_worker in zip(self._workers.values(), self._deal(wave, blocks), strict=True):
            if blocks_of_worker:
                worker.ask(header, blocks_of_worker)

        # 2. Hand on the answers in the round's order. The next wave overwrites the buffers.
        copied = len(wave.ids) < len(request.ids)
        uploads: dict[int, Contents] = {}
        for first, clients in blocks:
            while first not in uploads:
                uploads |= self._next(header, wave)
            rows = slice(first, first + len(clients))
            upload, client_state, norms = self._buffers.reply(request.job, rows, uploads[first], copied)
            yield Reply(
                places=np.arange(begin + first, begin + first + len(clients)),
                upload=upload,
                client_state=client_state,
                norms=norms,
                effort=self._trainer.effort(wave.only(rows)),
            )
            if self._request is not request:
                raise RuntimeError("this request can't be continued: the executor has since been given another request")

    def _deal(self, wave: Request, blocks: list[Block]) -> list[list[Block]]:
        """Each worker's blocks, in order; a block takes as long as its longest client."""
        of_clients = self._trainer.costs(wave)
        costs = [int(of_clients[first : first + len(ids)].max()) for first, ids in blocks]
        of_workers: list[list[Block]] = []
        for numbers in dealt(costs, self._count):
            of_workers.append([blocks[number] for number in numbers])
        return of_workers

    def _next(self, header: RequestHeader, wave: Request) -> dict[int, Contents]:
        """Wait until a worker has answered a block, or has died; returns the uploads by the block's first place."""
        busy = [worker for worker in self._workers.values() if worker.left]
        ready = connection.wait([worker.pipe for worker in busy])
        worker = next(worker for worker in busy if worker.pipe in ready)
        answer = worker.answer()
        if answer is None:
            self._replace(worker, header, wave)
            return {}
        first, uploads = answer
        return {first: uploads}

    def _replace(self, dead: Worker, header: RequestHeader, wave: Request) -> None:
        """Let a new worker answer the blocks that a dead one has left."""
        death = f"round {wave.round + 1}: worker {dead.number} died ({dead.end()})"
        self._deaths[dead.number] += 1
        if self._deaths[dead.number] > REPLACED:
            hint = "use fewer workers if memory is short"
            if self._buffers.start == "spawn":
                hint = f"begin the program by if __name__ == '__main__':, which spawned workers need, or {hint}"
            raise WorkerError(f"{death}, as did the {REPLACED} before it; {hint}")
        log.warning("%s; its clients are asked again", death)
        fresh = self._start_one(dead.number)
        for first, ids in dead.left:  # the dead worker may have written to its clients' rows
            self._buffers.put_clients(wave.only(slice(first, first + len(ids))), first)
        fresh.ask(header, dead.left)
