"""Which samples a client sees in which local step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats, Ints
from ..basics.errors import check
from ..basics.randomness import Purpose, fold, keys


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


@dataclass(frozen=True)
class Cut:
    """How a client's local training is cut into batches: what follows from its number of samples alone.

    Batches hold `batch` samples (`"full"`: all of them); the last, smaller one of a pass is kept, or dropped with
    `drop_last` (a client with fewer samples than one batch keeps it, since it would not train at all). With `steps` a
    client takes that many steps, through as many passes as that needs; otherwise whole passes.
    """

    batch: int | str
    steps: int | None
    drop_last: bool

    def epoch(self, sizes: Ints) -> tuple[Ints, Ints]:
        """For clients of so many samples: the batch size, and how many batches a pass has."""
        size = sizes if self.batch == "full" else np.full_like(sizes, int(self.batch))
        return size, np.maximum(sizes // size, 1) if self.drop_last else -(-sizes // size)

    def numbers(self, sizes: Ints, epochs: int) -> tuple[Ints, Ints, Ints]:
        """For clients of `sizes` `[C]` samples: their steps a round, their steps a pass, their samples a round."""
        size, per_epoch = self.epoch(sizes)
        steps = per_epoch * epochs if self.steps is None else np.full_like(sizes, self.steps)
        per_pass = np.minimum(sizes, per_epoch * size)
        passes, more = np.divmod(steps, per_epoch)
        return steps, per_epoch, passes * per_pass + np.minimum(more * size, per_pass)


class Batches:
    """Plans the batches of any clients in any round: a pure function of (seed, round, the client's number).

    A client's samples are shuffled afresh in every pass and cut into batches as `cut` says. `clients[r]` are the
    indices of the samples of the client in row r, `numbers[r]` is its number in the whole federation (None: r), by
    which it draws; so a part of the clients draws what it would among all. `sizes` `[N]` counts the samples, and `like`
    gives the type and device of a plan's weights. All plans have the same `width`, the largest batch B of any client.
    """

    def __init__(
        self, cut: Cut, clients: Sequence[Ints], *, seed: int, like: Tensor, numbers: Ints | None = None
    ) -> None:
        self.sizes = np.array([len(c) for c in clients], dtype=np.int64)
        self.cut, self._numbers = cut, numbers
        self._members = np.concatenate(clients)
        self._first = np.cumsum(self.sizes) - self.sizes
        self._seed, self._like = seed, like
        self.width = int(np.minimum(cut.epoch(self.sizes)[0], self.sizes).max())
        self._positions = lru_cache(maxsize=8)(self._positions_uncached)

    def rows(self, ids: Ints) -> Ints:
        """The rows of the clients with the numbers `ids`; `ValueError` if one of them is not here."""
        if self._numbers is None:
            return ids
        rows = np.searchsorted(self._numbers, ids)
        here = self._numbers[np.minimum(rows, len(self._numbers) - 1)] == ids
        check(bool(here.all()), "clients", ids[~here].tolist(), "their samples are not held here")
        return rows

    def plan(self, round: int, ids: Ints, epochs: int) -> Plan:
        """The plan of the clients `ids` `[C]` in round `round` (0-based), which may be any block of the round's."""
        rows = self.rows(ids)
        sizes = self.sizes[rows]
        passes, position, weights, count, steps = self._positions(sizes.tobytes(), epochs)
        order = self._shuffle(round, ids, sizes, passes)
        index = self._members.take(order.take(position) + self._first[rows][:, None])
        return Plan(index, weights, count, steps)

    def whole(self, ids: Ints, batch: int) -> Plan:
        """One pass over all samples of the clients, in chunks of `batch`; the weights of a client sum to 1."""
        rows = self.rows(ids)
        sizes = self.sizes[rows]
        chunks = -(-int(sizes.max()) // batch)
        position = np.arange(chunks * batch).reshape(chunks, 1, batch)
        valid = position < sizes[None, :, None]
        index = self._members[np.where(valid, position, 0) + self._first[rows][None, :, None]]
        weights = self._tensor(valid / sizes[None, :, None])
        return Plan(index, weights, valid.sum(axis=2), -(-sizes // batch))

    def _positions_uncached(self, sizes_bytes: bytes, epochs: int) -> tuple[int, Ints, Tensor, Ints, Ints]:
        """How the shuffled epochs of clients of these sizes are cut into batches; the same in every round, hence kept.

        Returns the number of epochs begun, each place's position in the flat result of `_shuffle` `[K, C, B]`, and the
        plan's weights, count and steps.
        """
        sizes = np.frombuffer(sizes_bytes, dtype=np.int64)
        size, per_epoch = self.cut.epoch(sizes)
        steps = self.cut.numbers(sizes, epochs)[0]
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
