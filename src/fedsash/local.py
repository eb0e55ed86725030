"""Local training of a block of clients: the only loop over local steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import repeat
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from .batches import Batches, Floats, Ints, Plan
from .checks import check
from .data.encoded import Pixels
from .data.federated import FederatedData
from .layout import Layout
from .methods import Local, Method, Step, Upload, Vectors
from .methods.base import Scalar, overrides
from .randomness import Purpose, fold, keys, to_tensor
from .schedules import Constant, Flat, LocalSchedule, Schedule


@dataclass(frozen=True)
class Client:
    """How every client trains: SGD with learning rate `lr` in batches of `batch` samples.

    A step follows the method's direction, clipped to norm `clip`, plus `weight_decay * w`, through an undamped
    `momentum` that starts at zero in every round (PyTorch's SGD). A round is `epochs` passes over the client's samples,
    or `steps` steps; the last, smaller batch of a pass is kept unless `drop_last`. `schedule` moves the rate by round,
    `local_schedule` within a round.
    """

    lr: float = 0.1
    batch: int | Literal["full"] = 32
    epochs: int = 1
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    drop_last: bool = False
    schedule: Schedule = field(default_factory=Constant)
    local_schedule: LocalSchedule = field(default_factory=Flat)

    def __post_init__(self) -> None:
        check(self.lr >= 0, "Client.lr", self.lr, "must not be negative")
        check(self.batch == "full" or self.batch > 0, "Client.batch", self.batch, 'must be at least 1, or "full"')
        check(self.epochs > 0, "Client.epochs", self.epochs, "must be at least 1")
        check(self.steps is None or self.steps > 0, "Client.steps", self.steps, "must be at least 1")
        check(0 <= self.momentum < 1, "Client.momentum", self.momentum, "must be in [0, 1)")
        check(self.weight_decay >= 0, "Client.weight_decay", self.weight_decay, "must not be negative")
        check(self.clip is None or self.clip > 0, "Client.clip", self.clip, "must be positive")

    def batches(self, clients: Sequence[Ints], seed: int, like: Tensor) -> Batches:
        """The planner of these clients' batches."""
        return Batches(clients, batch=self.batch, steps=self.steps, drop_last=self.drop_last, seed=seed, like=like)

    def rates(self, lr: float, steps: Ints, method: Method) -> Floats:
        """The learning rate of every step, `[K, C]`, in a round of rate `lr`; zero where a client has finished."""
        k = np.arange(steps.max())[:, None]
        schedules = filter(None, (self.local_schedule, method.local_schedule))
        return np.where(k < steps, lr * np.prod([s.factors(k, steps) for s in schedules], axis=0), 0.0)

    def coefficients(self, lr: float, steps: Ints, method: Method) -> Floats:
        """FedNova's normaliser a_i of clients that take `steps` `[C]` steps in a round of rate `lr`, `[C]`.

        It is the sum of the weights, in units of `lr`, with which a client's gradients enter its update: what the
        update would be for gradients of -1, by the recursion of its momentum and of the method's tether. Weight decay
        is left out, as published.
        """
        moved = v = np.zeros(len(steps))
        for eta in self.rates(1.0, steps, method):
            v = self.momentum * v + 1 - method.tether * lr * moved
            moved = moved + eta * v
        return moved

    def advance(self, w: Tensor, v: Tensor | None, direction: Tensor, lr: Scalar) -> None:
        """Move `w` `[C, D]` (and the momentum `v`) by one step of SGD, in place."""
        if self.clip is not None:
            norm = torch.linalg.vector_norm(direction, dim=1, keepdim=True)
            direction = direction * (self.clip / norm).clamp(max=1.0)
        if self.weight_decay:
            direction = torch.add(direction, w, alpha=self.weight_decay)
        if v is not None:
            direction = v.mul_(self.momentum).add_(direction)
        if isinstance(lr, Tensor):
            w.sub_(lr * direction)
        else:
            w.sub_(direction, alpha=lr)


Numbers = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""`size`, `steps`, `per_epoch`, `samples` and `lr_sum` of a `Local`."""


@dataclass
class Batch:
    """The samples of one step: `x` and `y` `[C, B, ...]`, `weights` `[C, B]` (a client's sum to 1), `keys` `[C]`."""

    x: Tensor
    y: Tensor
    weights: Tensor
    keys: Tensor


class Gradient(Protocol):
    """`gradient(w, batch, shared)`: the gradient `[C, D]` of each client's loss over its batch at `w` `[C, D]`.

    What the method adds to the loss may need the vectors that were sent, `shared`.
    """

    one: bool
    """Whether it takes one client at a time (C = 1)."""
    dropout: bool
    """Whether the model draws dropout, so that the steps need keys."""

    def __call__(self, w: Tensor, batch: Batch, shared: Vectors) -> Tensor: ...

    def pieces(self, w: Tensor, batch: Batch, shared: Vectors) -> Sequence[Tensor]:
        """The same gradients in the pieces in which they are computed, not copied into one vector."""
        ...

    def cut(self, w: Tensor) -> Sequence[Tensor]:
        """Views of a vector, cut like `pieces`."""
        ...

    def features(self) -> Tensor:
        """What entered the classifier in the last gradient, `[C, B, d]`, if the method's objective needs it."""
        ...


class Trainer:
    """Trains blocks of clients of one federation by one method, with the gradients of one engine.

    An engine that compiles replaces `steps` by machine code for one shape: `unrolled` local steps at a time, of blocks
    padded to `padded` clients.
    """

    def __init__(
        self, method: Method, client: Client, data: FederatedData, gradient: Gradient, layout: Layout, seed: int
    ) -> None:
        self.method, self.client, self.data, self.gradient = method, client, data, gradient
        self._layout = layout
        self._like = torch.empty(0, dtype=layout.dtype, device=data.train.x.device)
        self.batches = client.batches(data.clients, seed, self._like)
        self._in_pieces = not overrides(method, "direction") and client.clip is None
        self._has_after = overrides(method, "after")
        self.steps: Callable[..., None] = self._steps
        self.unrolled = 1
        self.padded = 0
        self._numbers = lru_cache(maxsize=64)(self._numbers_uncached)
        self._seed = seed

    def train(self, round: int, ids: Ints, sent: Tensor, shared: Vectors, mine: Vectors) -> tuple[Upload, Vectors]:
        """Train the clients `ids` `[C]` in round `round` from `sent` `[D]`; `mine` is what each remembers, `[C, ...]`.

        Returns what they send up and what they remember from now on, in fresh tensors.
        """
        count = len(ids)
        if count < self.padded:
            ids = np.pad(ids, (0, self.padded - count), mode="edge")
            mine = {name: rows[np.minimum(np.arange(self.padded), count - 1)] for name, rows in mine.items()}
        lr, local = self._begin(round, ids, sent, shared, mine)
        local.work = self.method.begin(local)
        v = torch.zeros_like(local.w) if self.client.momentum else None
        plan = self.batches.plan(round, ids, self._epochs(round))
        plan = plan.client(0) if self.gradient.one else plan
        data = self._pixels(plan), self.data.train.y, sent
        for k, drawn in self._draws(round, ids, plan):
            self.steps(local.w, v, lr[k], *drawn, *data, vectors=(shared, mine, local.work))
        upload, kept = self.method.finish(local)
        return _first(count, upload), _first(count, kept)

    def probe(self, round: int, ids: Ints, sent: Tensor, shared: Vectors, mine: Vectors) -> tuple[Upload, Vectors]:
        """What the clients `ids` `[C]` send before the training; they remember nothing of it."""
        return self.method.probe(self._begin(round, ids, sent, shared, mine)[1]), {}

    def _begin(
        self, round: int, ids: Ints, sent: Tensor, shared: Vectors, mine: Vectors
    ) -> tuple[list[float] | Tensor, Local]:
        """The rate of each step, and the clients before the first one."""
        sizes = self.batches.sizes[ids].tobytes()
        lr, numbers = self._numbers(self.client.schedule.lr(round, self.client.lr), self._epochs(round), sizes)
        w = sent.expand(len(ids), -1).clone()
        full_grad = partial(self._full_gradient, round, ids, shared)
        return lr, Local(round, w, sent, *numbers, shared, mine, {}, self._layout, full_grad)

    def _steps(
        self,
        w: Tensor,
        v: Tensor | None,
        lr: list[float] | Tensor,
        index: Tensor,
        weights: Tensor,
        keys: Tensor,
        x: Pixels,
        y: Tensor,
        sent: Tensor,
        *,
        vectors: tuple[Vectors, Vectors, Vectors],
    ) -> None:
        """Local steps of the block, in place: all that they need comes in, so that an engine may compile them.

        `vectors` are those that were sent, the clients' own, and those of this round.
        """
        for k in range(len(index)):
            batch = self._batch(index[k], weights[k], keys[k], x, y)
            grad = partial(self.gradient, batch=batch, shared=vectors[0])
            labels = batch.y, batch.weights
            step = Step(w, sent, lr[k], *vectors, *labels, self._layout, grad, self.gradient.features)
            if self._in_pieces:
                cut = self.gradient.cut
                moments = repeat(None) if v is None else cut(v)
                for part in zip(cut(w), moments, self.gradient.pieces(w, batch, vectors[0]), strict=False):
                    self.client.advance(*part, lr[k])
            else:
                self.client.advance(w, v, self.method.direction(step), lr[k])
            if self._has_after:
                self.method.after(step)

    def _batch(self, index: Tensor, weights: Tensor, keys: Tensor, x: Pixels, y: Tensor, augment: bool = True) -> Batch:
        """Gather, augment and normalise the samples `index` `[C, B]`."""
        flat = index.reshape(-1)
        drawn = x.index_select(0, flat)
        transform = self.data.transform
        if augment and transform.augments:
            places = torch.arange(1, index.shape[1] + 1, device=keys.device)
            drawn = transform.augment(drawn, (keys[:, None] + (places << 32)).reshape(-1))
        drawn = transform.prepare(drawn).to(self._like.dtype)
        return Batch(
            drawn.view(*index.shape, *drawn.shape[1:]), y[flat].view(*index.shape, *y.shape[1:]), weights, keys
        )

    def _draws(self, round: int, ids: Ints, plan: Plan) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor]]]:
        """Index, weights and keys of the steps, `unrolled` at a time; a single client's without padding."""
        device = self.data.train.x.device
        h = np.zeros(plan.index.shape[:2], dtype=np.uint64)
        if self.gradient.dropout or self.data.transform.augments:
            h = fold(keys(self._seed, Purpose.STEP, round, ids), np.arange(len(h))[:, None])
        index, weights, step_keys = torch.from_numpy(plan.index).to(device), plan.weights, to_tensor(h, device)
        for k in range(0, len(index), self.unrolled):
            chunk, width = slice(k, k + self.unrolled), self._width(plan, k)
            yield chunk, (index[chunk, :, :width], weights[chunk, :, :width], step_keys[chunk])

    def _width(self, plan: Plan, k: int) -> int:
        """How many samples of each client step k gathers."""
        return int(plan.count[k, 0]) if self.gradient.one else plan.index.shape[2]

    def _pixels(self, plan: Plan) -> Pixels:
        """What the plan's steps gather from; images that are still encoded are decoded a few steps ahead."""
        x = self.data.train.x
        if isinstance(x, Tensor):
            return x
        return x.ahead(index[:, : self._width(plan, k)].reshape(-1) for k, index in enumerate(plan.index))

    def _full_gradient(self, round: int, ids: Ints, shared: Vectors, w: Tensor) -> Tensor:
        """Each client's gradient over all its samples, without augmentation, in chunks of the largest batch."""
        size = self.client.batch if self.client.batch != "full" else int(self.batches.sizes[ids].max())
        plan = self.batches.whole(ids, size)
        x, y = self._pixels(plan), self.data.train.y
        total = torch.zeros_like(w)
        for _, drawn in self._draws(round, ids, plan):
            for index, weights, step_keys in zip(*drawn, strict=True):
                total += self.gradient(w, self._batch(index, weights, step_keys, x, y, augment=False), shared)
        return total

    def _epochs(self, round: int) -> int:
        return self.client.schedule.epochs(round, self.client.epochs)

    def _numbers_uncached(self, lr: float, epochs: int, sizes_bytes: bytes) -> tuple[list[float] | Tensor, Numbers]:
        """Each step's learning rate, and the numbers of a `Local`: the same in most rounds.

        The rates are a tensor `[K, C, 1]`; a single client's are plain floats, which take less time.
        """
        sizes = np.frombuffer(sizes_bytes, dtype=np.int64)
        steps, per_epoch, samples = self.batches.numbers(sizes, epochs)
        rates = self.client.rates(lr, steps, self.method)
        column = self._column
        numbers = column(sizes), column(steps), column(per_epoch), column(samples), column(rates.sum(axis=0))
        return (rates[:, 0].tolist() if self.gradient.one else column(rates)), numbers

    def _column(self, values: Ints | Floats) -> Tensor:
        return torch.from_numpy(values.copy()).to(self._like).unsqueeze(-1)


def _first(count: int, vectors: Vectors) -> Vectors:
    """The first `count` rows of each, without the padding."""
    return {name: rows if len(rows) == count else rows[:count] for name, rows in vectors.items()}
