"""The batches: which samples a client sees in each local step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.arrays import Floats, Ints
from ..basics.randomness import Purpose, fold, keys
from ..data.members import Members
from ..settings.errors import check

LAST = np.iinfo(np.uint64).max
"""The key of a place without a sample, which is sorted behind all others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchPlan:
    """The batches of C clients for up to K local steps of up to B samples.

    - `index` `[K, C, B]`: the indices of training samples;
    - `weights` `[K, C, B]`: 1/b for the b samples of a batch, so that a weighted sum of losses is the mean loss of the
      batch;
    - `count` `[K, C]`: b;
    - `steps` `[C]`: how many steps each client takes.

    Padding follows the b samples. Its `weights` are 0, and its `index` is one of the client's own samples, so that it
    cannot introduce values that are not finite.
    """

    index: Ints
    weights: Tensor
    count: Ints
    steps: Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """The amount of local training of C clients in a round, `[C]` each.

    A client has `size` samples, in batches of up to `batch`. It takes `steps` local steps, `per_epoch` of them in each
    pass over its samples. It sees `samples` samples in all its steps; a sample that it sees in two passes counts twice.
    """

    size: Ints
    batch: Ints
    steps: Ints
    per_epoch: Ints
    samples: Ints


@dataclass(frozen=True)
class Batching:
    """How a client's samples are cut into batches; it depends only on their number.

    Batches hold `batch` samples (`"full"`: all of them). The last, smaller batch of a pass is kept, or dropped with
    `drop_last`. A client with fewer samples than one batch always keeps it, since otherwise it would not train. Amounts
    of training are numbers of whole passes, or with `by_steps` of steps, in as many passes as they need.
    """

    batch: int | str
    by_steps: bool
    drop_last: bool

    def single(self, sizes: Ints) -> Ints:
        """The clients with `sizes` `[N]` samples that have a batch of one sample."""
        batch = self.workload(sizes, 1).batch
        rest = sizes % batch
        return np.flatnonzero((batch == 1) | ((rest == 1) & ((sizes == 1) | (not self.drop_last))))

    def workload(self, sizes: Ints, amounts: Ints | int) -> Workload:
        """The workload of clients with `sizes` `[C]` samples that train by these `amounts` `[C]`."""
        batch = sizes if self.batch == "full" else np.full_like(sizes, int(self.batch))
        per_epoch = np.maximum(sizes // batch, 1) if self.drop_last else -(-sizes // batch)
        steps = np.full_like(sizes, amounts) if self.by_steps else per_epoch * amounts
        per_pass = np.minimum(sizes, per_epoch * batch)
        passes, more = np.divmod(steps, per_epoch)
        samples = passes * per_pass + np.minimum(more * batch, per_pass)
        return Workload(size=sizes, batch=batch, steps=steps, per_epoch=per_epoch, samples=samples)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cut:
    """How the shuffled passes of a workload are cut into batches; equal in all rounds with the same workload.

    A shuffle is an array `[C, passes, longest]`, in which `places` `[passes, longest]` number the draws of each client,
    and `padding` `[C, 1, longest]` is where clients have no sample; None if all have as many. `flat` `[K, C, B]` is
    where the sample of each place of a batch stands in the flattened shuffle. The others are fields of a `BatchPlan`.
    """

    places: NDArray[np.uint64]
    padding: NDArray[np.bool_] | None
    flat: Ints
    weights: Tensor
    count: Ints


def rows_of(ids: Ints, numbers: Ints | None) -> Ints:
    """The rows `[C]` of the clients `ids` `[C]` among those with these `numbers`, ascending; None: 0, 1, 2, ...

    Raises `ValueError` if a client is not among them.
    """
    if numbers is None:
        return ids
    rows = np.searchsorted(numbers, ids)
    here = numbers[np.minimum(rows, len(numbers) - 1)] == ids
    check(bool(here.all()), "clients", ids[~here].tolist(), "their samples are not held here")
    return rows


class Batches:
    """Plans the batches of any clients in any round: a pure function of (seed, purpose, round, the client's number).

    A client's samples are shuffled again in every pass and cut into batches by `batching`. `clients[r]` are the indices
    of the samples of the client in row r. `numbers[r]` is this client's number in the whole federation (None: r); its
    random numbers depend on it, so clients draw the same on every machine. `sizes` `[N]` are the numbers of samples.
    `like` gives the type and device of a plan's weights. All plans have the same `width`, the largest batch of any
    client.
    """

    def __init__(
        self,
        batching: Batching,
        clients: Sequence[Ints],
        *,
        seed: int,
        like: Tensor,
        numbers: Ints | None = None,
        purpose: Purpose = Purpose.BATCHES,
    ) -> None:
        members = Members.of(clients)
        self.sizes = members.sizes
        self.batching = batching
        self._members = members.flat
        self._numbers = numbers
        self._first = members.ends - self.sizes
        self._seed = seed
        self._like = like
        self._purpose = purpose
        most = int(self.sizes.max())
        self.width = most if batching.batch == "full" else min(int(batching.batch), most)
        # Most rounds have the workload of an earlier one. To cut a small one anew would take longer than to shuffle.
        self._cut_once = lru_cache(maxsize=8)(self._cut)

    def sizes_of(self, ids: Ints) -> Ints:
        """The numbers of samples `[C]` of these clients; raises `ValueError` if one is not held here."""
        return self.sizes[rows_of(ids, self._numbers)]

    def plan(self, round: int, ids: Ints, work: Workload) -> BatchPlan:
        """The plan of the clients `ids` `[C]`, any of the clients of `round` (from 0), for their workload."""
        cut = self._cut_once(work)
        h = fold(keys(self._seed, self._purpose, round, ids)[:, None, None], cut.places)
        if cut.padding is not None:
            np.copyto(h, np.uint64(LAST), where=cut.padding)
        order = h.argsort(axis=2)
        first = self._first[rows_of(ids, self._numbers)]
        index = self._members.take(order.take(cut.flat) + first[:, None])
        return BatchPlan(index=index, weights=cut.weights, count=cut.count, steps=work.steps)

    def whole(self, ids: Ints, batch: int) -> BatchPlan:
        """One pass over all samples of the clients `ids` `[C]`, in chunks of `batch`; a client's weights sum to 1."""
        rows = rows_of(ids, self._numbers)
        sizes = self.sizes[rows]
        chunks = -(-int(sizes.max()) // batch)
        position = np.arange(chunks * batch).reshape(chunks, 1, batch)
        valid = position < sizes[None, :, None]
        index = self._members[np.where(valid, position, 0) + self._first[rows][None, :, None]]
        weights = self._tensor(valid / sizes[None, :, None])
        return BatchPlan(index=index, weights=weights, count=valid.sum(axis=2), steps=-(-sizes // batch))

    def _cut(self, work: Workload) -> _Cut:
        sizes = work.size
        k = np.arange(work.steps.max())[:, None]
        epoch, batch = np.divmod(k, work.per_epoch)
        position = (batch * work.batch)[:, :, None] + np.arange(self.width)
        valid = (position < sizes[:, None]) & (k < work.steps)[:, :, None]
        count = valid.sum(axis=2)
        longest = int(sizes.max())
        passes = int(epoch[k < work.steps].max()) + 1
        row = np.arange(len(sizes))[:, None] * passes * longest
        places = (np.arange(passes)[:, None] << 32) + np.arange(longest)
        return _Cut(
            places=places.astype(np.uint64),
            padding=np.arange(longest) >= sizes[:, None, None] if sizes.min() < longest else None,
            flat=row + np.where(valid, epoch[:, :, None] * longest + position, 0),
            weights=self._tensor(valid / np.maximum(count, 1)[:, :, None]),
            count=count,
        )

    def _tensor(self, values: Floats) -> Tensor:
        return torch.from_numpy(values).to(self._like.dtype).to(self._like.device)
