"""Which samples a client sees in which local step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .randomness import Purpose, fold, keys

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """The batches of C clients for up to K local steps of up to B samples.

    `index` `[K, C, B]` numbers training samples. `weights` `[K, C, B]` is 1/b for the b samples of a batch, so that a
    weighted sum of losses is the batch's mean loss. They come first; where there is none, `weights` is 0 and `index`
    any of the client's samples, so that the padding can't bring in a value that is not finite. `count` `[K, C]` is b,
    and `steps` `[C]` the number of steps each client takes.
    """

    index: Ints
    weights: Tensor
    count: Ints
    steps: Ints

    def client(self, c: int) -> Plan:
        """The plan of one client of the block, without the padding of the others."""
        k = int(self.steps[c])
        b = int(self.count[:k, c].max(initial=0))
        one = slice(c, c + 1)
        return Plan(self.index[:k, one, :b], self.weights[:k, one, :b], self.count[:k, one], self.steps[one])


class Batches:
    """Plans the batches of any clients in any round: a pure function of (seed, round, client).

    A client's samples are shuffled afresh in every local epoch and cut into batches of `batch` (`"full"`: all of
    them); the last, smaller batch is kept, or dropped with `drop_last` (a client with fewer samples than one batch
    keeps it, since it would not train at all). With `steps` the client takes that many steps, through as many epochs
    as that needs; otherwise `epochs` full epochs. `clients[i]` are the indices of client `i`'s samples, `sizes` `[N]`
    counts them, and `like` gives the type and device of a plan's weights. All plans have the same `width`, the largest
    batch B of any client.
    """

    def __init__(
        self,
        clients: Sequence[Ints],
        *,
        batch: int | str,
        steps: int | None,
        drop_last: bool,
        seed: int,
        like: Tensor,
    ) -> None:
        self.sizes = np.array([len(c) for c in clients], dtype=np.int64)
        self._members = np.concatenate(clients)
        self._first = np.cumsum(self.sizes) - self.sizes
        self._batch, self._steps, self._drop_last, self._seed = batch, steps, drop_last, seed
        self._like = like
        self.width = int(np.minimum(self._epoch(self.sizes)[0], self.sizes).max())
        self._cut = lru_cache(maxsize=8)(self._cut_uncached)

    def plan(self, round: int, ids: Ints, epochs: int) -> Plan:
        """The plan of the clients `ids` `[C]` in round `round` (0-based), which may be any block of the round's."""
        sizes = self.sizes[ids]
        passes, position, weights, count, steps = self._cut(sizes.tobytes(), epochs)
        order = self._shuffle(round, ids, sizes, passes)
        index = self._members.take(order.take(position) + self._first[ids][:, None])
        return Plan(index, weights, count, steps)

    def whole(self, ids: Ints, batch: int) -> Plan:
        """One pass over all samples of the clients, in chunks of `batch`; the weights of a client sum to 1."""
        sizes = self.sizes[ids]
        chunks = -(-int(sizes.max()) // batch)
        position = np.arange(chunks * batch).reshape(chunks, 1, batch)
        valid = position < sizes[None, :, None]
        index = self._members[np.where(valid, position, 0) + self._first[ids][None, :, None]]
        weights = self._tensor(valid / sizes[None, :, None])
        return Plan(index, weights, valid.sum(axis=2), -(-sizes // batch))

    def steps(self, epochs: int) -> Ints:
        """How many local steps each client of the federation takes in a round, `[N]`."""
        return self.numbers(self.sizes, epochs)[0]

    def samples(self, epochs: int) -> Ints:
        """How many samples each client of the federation trains on in a round, `[N]`."""
        return self.numbers(self.sizes, epochs)[2]

    def numbers(self, sizes: Ints, epochs: int) -> tuple[Ints, Ints, Ints]:
        """For clients of `sizes` `[C]` samples: their steps a round, their steps an epoch, their samples a round."""
        size, per_epoch = self._epoch(sizes)
        steps = per_epoch * epochs if self._steps is None else np.full_like(sizes, self._steps)
        per_pass = np.minimum(sizes, per_epoch * size)
        passes, more = np.divmod(steps, per_epoch)
        return steps, per_epoch, passes * per_pass + np.minimum(more * size, per_pass)

    def _epoch(self, sizes: Ints) -> tuple[Ints, Ints]:
        """For clients of so many samples: the batch size, and how many batches an epoch has."""
        size = sizes if self._batch == "full" else np.full_like(sizes, int(self._batch))
        return size, np.maximum(sizes // size, 1) if self._drop_last else -(-sizes // size)

    def _cut_uncached(self, sizes_bytes: bytes, epochs: int) -> tuple[int, Ints, Tensor, Ints, Ints]:
        """How the shuffled epochs of clients of these sizes are cut into batches; the same in every round, hence kept.

        Returns the number of epochs begun, each place's position in the flat result of `_shuffle` `[K, C, B]`, and the
        plan's weights, count and steps.
        """
        sizes = np.frombuffer(sizes_bytes, dtype=np.int64)
        size, per_epoch = self._epoch(sizes)
        steps = self.numbers(sizes, epochs)[0]
        k = np.arange(steps.max())[:, None]
        epoch, batch = np.divmod(k, per_epoch)
        place = np.arange(self.width)
        position = (batch * size)[:, :, None] + place
        valid = (position < sizes[:, None]) & (k < steps)[:, :, None]
        count = valid.sum(axis=2)
        weights = self._tensor(valid / np.maximum(count, 1)[:, :, None])
        longest, passes = int(sizes.max()), int(epoch[k < steps].max()) + 1
        row = np.arange(len(sizes))[:, None] * passes * longest
        flat = row + np.where(valid, epoch[:, :, None] * longest + position, 0)
        return passes, flat, weights, count, steps

    def _tensor(self, values: Floats) -> Tensor:
        return torch.from_numpy(values).to(self._like.dtype).to(self._like.device)

    def _shuffle(self, round: int, ids: Ints, sizes: Ints, passes: int) -> Ints:
        """Each client's samples in a new order for each local epoch, `[C, passes, longest]`; padding comes last."""
        longest = int(sizes.max())
        places = (np.arange(passes)[:, None] << 32) + np.arange(longest)
        h = fold(keys(self._seed, Purpose.BATCHES, round, ids)[:, None, None], places)
        if sizes.min() < longest:
            h[np.broadcast_to(np.arange(longest) >= sizes[:, None, None], h.shape)] = np.iinfo(np.uint64).max
        return h.argsort(axis=2)
