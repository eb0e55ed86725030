"""Training in this process: one client at a time, or a stacked block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..aggregation import largest_norms
from ..batches import Ints
from ..local import Trainer
from ..methods import Upload, Vectors


@dataclass
class Trained:
    """What the clients at places `first`, `first + 1`, ... of a round give back, `[b, ...]` each."""

    first: int
    upload: Upload
    mine: Vectors
    norms: Tensor
    """The largest norm among each client's uploaded vectors, `[b]`."""


Job = Literal["train", "probe"]
"""What the clients of a round are to do: the method of `Trainer` that does it."""


def work(
    job: Job, trainer: Trainer, round: int, ids: Ints, sent: Tensor, shared: Vectors, mine: Vectors, first: int
) -> Trained:
    """Let one block of clients train, or be probed; `first` is its first client's place in the round.

    What is raised on the way, by a model or a loss say, gets a note that names the clients and the round.
    """
    try:
        with torch.no_grad():
            upload, kept = getattr(trainer, job)(round, ids, sent, shared, mine)
            return Trained(first, upload, kept, largest_norms(upload))
    except Exception as error:
        error.add_note(f"while training clients {ids.tolist()} in round {round}")
        raise


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch with `count` threads, and with as many as before afterwards."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Direct:
    """Trains a round's clients in this process with `count` threads, in blocks of `block`."""

    def __init__(self, trainer: Trainer, block: int, count: int) -> None:
        self._trainer, self._block, self._threads = trainer, block, count

    def work(self, job: Job, round: int, ids: Ints, sent: Tensor, shared: Vectors, mine: Vectors) -> Iterator[Trained]:
        """Let the clients `ids` `[s]` of a round train from `sent`; yields them block by block, in order."""
        for first in range(0, len(ids), self._block):
            block = slice(first, first + self._block)
            own = {name: rows[block] for name, rows in mine.items()}
            with threads(self._threads):
                trained = work(job, self._trainer, round, ids[block], sent, shared, own, first)
            yield trained

    def memory(self) -> int:
        """No memory but this process's own."""
        return 0

    def close(self) -> None:
        """Nothing to end."""
