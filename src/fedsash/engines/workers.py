"""Worker processes on one machine, one thread each, that exchange vectors through shared memory."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..batches import Ints
from ..local import Trainer
from ..methods import Vectors
from .direct import Job, Trained, threads, work

Pieces = list[tuple[int, Ints]]
"""Parts of a round that are trained as one: the place of the first client, and the clients."""


def available() -> bool:
    """Whether this system can fork safely."""
    return sys.platform == "linux"


@dataclass
class Buffers:
    """The memory that this process and the workers share, for up to `capacity` clients at a time."""

    sent: Tensor
    shared: Vectors
    mine: Vectors
    uploads: dict[str, Vectors]
    norms: Tensor

    @classmethod
    def like(cls, sent: Tensor, shared: Vectors, mine: Vectors, uploads: dict[str, Vectors], capacity: int) -> Buffers:
        """Buffers of the shapes that one client shows; `uploads` holds what it sends in each job."""

        def rows(vectors: Vectors) -> Vectors:
            return {name: _shared_memory((capacity, *v.shape[1:]), v.dtype) for name, v in vectors.items()}

        return cls(
            sent=_shared_memory(sent.shape, sent.dtype),
            shared={name: _shared_memory(v.shape, v.dtype) for name, v in shared.items()},
            mine=rows(mine),
            uploads={job: rows(upload) for job, upload in uploads.items()},
            norms=_shared_memory((capacity,), sent.dtype),
        )


class Workers:
    """Trains a round's clients in `count` processes, in pieces of `block` clients.

    The processes are forked, so they share the data and the compiled code with this one; what changes every round
    travels through `buffers`. The pieces are dealt out by their number of steps, longest first, and given back in the
    round's order, so that the sums do not depend on how they were dealt.
    """

    def __init__(self, trainer: Trainer, count: int, block: int, buffers: Buffers) -> None:
        self._steps = trainer.batches.steps(trainer.client.epochs)
        self._block, self._buffers = block, buffers
        self._capacity = len(buffers.norms)
        self._pipes: list[connection.Connection] = []
        self._processes = []
        fork = multiprocessing.get_context("fork")
        for number in range(count):
            ours, theirs = fork.Pipe()
            self._pipes.append(ours)
            process = fork.Process(
                target=_serve, args=(theirs, list(self._pipes), trainer, buffers), name=f"worker {number}", daemon=True
            )
            with warnings.catch_warnings():  # the child sets its own threads up before it computes anything
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._processes.append(process)

    def work(self, job: Job, round: int, ids: Ints, sent: Tensor, shared: Vectors, mine: Vectors) -> Iterator[Trained]:
        """Let the clients `ids` `[s]` of a round train from `sent`; yields them piece by piece, in order."""
        self._buffers.sent.copy_(sent)
        for name, vector in shared.items():
            self._buffers.shared[name].copy_(vector)
        with threads(1):  # the cores are the workers'; a second thread here would wait for one at every sum
            for begin in range(0, len(ids), self._capacity):
                wave = slice(begin, begin + self._capacity)
                own = {name: rows[wave] for name, rows in mine.items()}
                yield from self._wave(job, round, begin, ids[wave], own)

    def memory(self) -> int:
        """What the workers hold beside what they share with this process, in bytes; they keep what they once had."""
        return sum(_private(process.pid) for process in self._processes)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=1)
            process.terminate()

    def _wave(self, job: Job, round: int, begin: int, ids: Ints, mine: Vectors) -> Iterator[Trained]:
        buffers = self._buffers
        for name, rows in mine.items():
            buffers.mine[name][: len(rows)].copy_(rows)
        pieces = [(first, ids[first : first + self._block]) for first in range(0, len(ids), self._block)]
        for pipe, dealt in zip(self._pipes, self._deal(pieces), strict=True):
            if dealt:
                pipe.send((job, round, dealt))
        done: set[int] = set()
        for first, clients in pieces:
            while first not in done:
                done.add(self._next(round))
            places = slice(first, first + len(clients))
            upload = {name: value[places] for name, value in buffers.uploads[job].items()}
            kept = {name: value[places] for name, value in buffers.mine.items()} if job == "train" else {}
            yield Trained(begin + first, upload, kept, buffers.norms[places])

    def _deal(self, pieces: Pieces) -> list[Pieces]:
        """Each worker's pieces, in order: the next longest piece goes to the worker with the least to do."""
        cost = [int(self._steps[ids].max()) for _, ids in pieces]
        load = [0] * len(self._pipes)
        dealt: list[list[int]] = [[] for _ in self._pipes]
        for piece in sorted(range(len(pieces)), key=lambda i: (-cost[i], i)):
            worker = load.index(min(load))
            load[worker] += cost[piece]
            dealt[worker].append(piece)
        return [[pieces[i] for i in sorted(own)] for own in dealt]

    def _next(self, round: int) -> int:
        """Wait for a worker to finish a piece; its first place."""
        pipe = connection.wait(self._pipes)[0]
        assert isinstance(pipe, connection.Connection)
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            process = self._processes[self._pipes.index(pipe)]
            process.join(timeout=1)
            raise RuntimeError(
                f"round {round}: {process.name} died (exit code {process.exitcode}); -9 is often a lack of memory: "
                "use fewer workers"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return int(answer)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory: otherwise every step hands its activations back and faults them in again."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    trim_threshold, mmap_threshold, huge = -1, -3, 2**31 - 1
    mallopt(trim_threshold, huge)
    mallopt(mmap_threshold, huge)


def _serve(
    pipe: connection.Connection, others: list[connection.Connection], trainer: Trainer, buffers: Buffers
) -> None:
    """A worker's life: train the pieces that come through the pipe until the other end closes it."""
    for other in others:  # inherited ends would keep the pipes open when the parent dies
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the pipe
    torch.set_num_threads(1)
    keep_freed_memory()
    while True:
        try:
            job, round, pieces = pipe.recv()
            for first, ids in pieces:
                _do_piece(job, trainer, buffers, round, first, ids)
                pipe.send(first)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:
            pipe.send(error)


def _do_piece(job: Job, trainer: Trainer, buffers: Buffers, round: int, first: int, ids: Ints) -> None:
    rows = slice(first, first + len(ids))
    own = {name: value[rows] for name, value in buffers.mine.items()}
    trained = work(job, trainer, round, ids, buffers.sent, buffers.shared, own, first)
    for name, value in trained.mine.items():
        buffers.mine[name][rows] = value
    for name, value in trained.upload.items():
        buffers.uploads[job][name][rows] = value
    buffers.norms[rows] = trained.norms


def _private(pid: int | None) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def _shared_memory(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> Tensor:
    """Zeros in anonymous memory that forked processes share (unlike /dev/shm it has no limit of its own)."""
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(mmap.mmap(-1, count * dtype.itemsize), dtype=dtype).view(shape)
