"""The executor with worker processes on one machine: one thread each, vectors in shared memory."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from ..basics.arrays import Ints
from ..basics.resolve import libraries_first
from ..exchange import Answer, Answers, Executor, Job, Reply, Request
from ..local import Trainer
from .buffers import Buffers
from .devices import threads

Piece = tuple[int, Ints]
"""Clients of a round that one process trains together: the place of the first one, and the clients' numbers."""


def can_fork() -> bool:
    """Whether this system can fork safely."""
    return sys.platform == "linux"


class Workers(Executor):
    """Answers in `count` processes, in pieces of `block` clients.

    Each process makes its own trainer with `make`. The vectors of a round are exchanged through `buffers`. Pieces are
    assigned by their number of steps, longest first, and answered in the round's order. `trainer` belongs to this
    process and trains no client. If a request is abandoned, the processes may still work on it; so they are ended, and
    the next request starts new ones. Raises `RuntimeError` if a process dies.
    """

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
        self._trainer, self._make, self._count, self._block = trainer, make, count, block
        self._buffers, self._described = buffers, described
        self._pipes: list[connection.Connection] = []
        self._processes: list[Any] = []
        self._request: Request | None = None
        self._start()

    def work(self, request: Request) -> Answers:
        if self._request is not None or len(self._processes) < self._count:  # given up, or interrupted as it started
            self.close()
            self._start()
        self._request = request
        try:
            with threads(1):  # the workers use all cores; a second thread here would wait for a core in every sum
                self._buffers.put(request)
                for begin in range(0, len(request.ids), self._buffers.capacity):
                    wave = request.only(slice(begin, begin + self._buffers.capacity))
                    yield from self._wave(request, wave, begin)
            self._request = None
        finally:
            if self._request is request:
                self.close()

    def described(self) -> dict[str, Any]:
        return self._described

    def memory(self) -> int:
        """The memory of the workers in bytes, without the memory that they share; they do not return freed memory."""
        return sum(_private(process.pid) for process in self._processes)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()
        self._pipes, self._processes, self._request = [], [], None

    def _start(self) -> None:
        try:
            for number in range(self._count):
                self._start_one(number)
        except BaseException:
            self.close()
            raise

    def _start_one(self, number: int) -> None:
        context: Any = torch.multiprocessing.get_context(self._buffers.start)
        ours, theirs = context.Pipe()
        self._pipes.append(ours)
        # Inherited pipe ends would keep the pipes open after this process dies. A spawned process inherits none.
        others = list(self._pipes) if self._buffers.start == "fork" else []
        process = context.Process(
            target=_serve, args=(theirs, others, self._make, self._buffers), name=f"worker {number}", daemon=True
        )
        with (
            warnings.catch_warnings(),
            libraries_first(),
            _deaf_to_ctrl_c(),
        ):  # this process handles Ctrl-C and ends the others
            warnings.simplefilter("ignore", DeprecationWarning)  # the child sets its number of threads itself
            process.start()
        self._processes.append(process)
        theirs.close()

    def _wave(self, request: Request, wave: Request, begin: int) -> Iterator[Answer]:
        """Answer for as many clients as fit into the buffers; `begin` is the place of the first one."""
        self._buffers.put_clients(wave)
        # In an evaluation a batch may mix samples of several clients, so pieces are as large as possible.
        size = self._block if request.job != "evaluate" else -(-len(wave.ids) // self._count)
        pieces = [(first, wave.ids[first : first + size]) for first in range(0, len(wave.ids), size)]
        for pipe, dealt in zip(self._pipes, self._deal(pieces), strict=True):
            if dealt:
                self._tell(pipe, (request.job, request.round, dealt))
        done: set[int] = set()
        for first, clients in pieces:
            while first not in done:
                done.add(self._next(request.round))
            rows = slice(first, first + len(clients))
            upload, own, norms = self._buffers.taken(request.job, rows)
            places, effort = (
                np.arange(begin + first, begin + first + len(clients)),
                self._trainer.effort(wave.only(rows)),
            )
            yield Reply(places=places, upload=upload, client_state=own, norms=norms, effort=effort)
            if self._request is not request:
                raise RuntimeError("this request can't be continued: the executor has since been given another request")

    def _deal(self, pieces: list[Piece]) -> list[list[Piece]]:
        """Each worker's pieces, in order. The next longest piece goes to the worker with the fewest steps so far."""
        cost = [int(self._trainer.steps_of(ids).max()) for _, ids in pieces]
        load = [0] * self._count
        dealt: list[list[int]] = [[] for _ in self._pipes]
        for piece in sorted(range(len(pieces)), key=lambda i: (-cost[i], i)):
            worker = load.index(min(load))
            load[worker] += cost[piece]
            dealt[worker].append(piece)
        return [[pieces[i] for i in sorted(own)] for own in dealt]

    def _tell(self, pipe: connection.Connection, order: tuple[Job, int, list[Piece]]) -> None:
        """Send an order to a worker."""
        try:
            pipe.send(order)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died(pipe, order[1]) from None

    def _died(self, pipe: connection.Connection, round: int) -> RuntimeError:
        process = self._processes[self._pipes.index(pipe)]
        process.join(timeout=1)
        why = f"{process.name} died (exit code {process.exitcode}); -9 often means too little memory: use fewer workers"
        return RuntimeError(f"round {round}: {why}")

    def _next(self, round: int) -> int:
        """Wait until a worker has finished a piece; returns the piece's first place."""
        pipe = connection.wait(self._pipes)[0]
        assert isinstance(pipe, connection.Connection)
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._died(pipe, round) from None
        if isinstance(answer, BaseException):
            raise answer
        return int(answer)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started here ignore Ctrl-C from their first moment; only the main thread can set this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory: otherwise every step returns it to the system and must fetch it again."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    trim_threshold, mmap_threshold, huge = -1, -3, 2**31 - 1
    mallopt(trim_threshold, huge)
    mallopt(mmap_threshold, huge)


def _serve(
    pipe: connection.Connection,
    others: list[connection.Connection],
    make: Callable[[], Trainer],
    buffers: Buffers,
) -> None:
    """The main loop of a worker: train the pieces that come through the pipe, until the other end closes it."""
    for other in others:
        other.close()
    torch.set_num_threads(1)
    keep_freed_memory()
    trainer = make()
    while True:
        try:
            job, round, pieces = pipe.recv()
            for first, ids in pieces:
                _do_piece(job, round, first, ids, trainer, buffers)
                pipe.send(first)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:
            pipe.send(error)


def _do_piece(job: Job, round: int, first: int, ids: Ints, trainer: Trainer, buffers: Buffers) -> None:
    rows = slice(first, first + len(ids))
    reply = trainer.answer(buffers.request(job, round, rows, ids), np.arange(len(ids)))
    buffers.give(job, rows, reply)


def _private(pid: int | None) -> int:
    """A process's own memory in bytes; 0 if the system does not tell it."""
    file = Path(f"/proc/{pid}/smaps_rollup")
    if not file.exists():
        return 0
    return sum(int(line.split()[1]) * 1024 for line in file.read_text().splitlines() if line.startswith("Private_"))
