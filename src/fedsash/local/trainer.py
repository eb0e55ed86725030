"""The client half: a trainer answers requests with the samples that it holds; the only loop over local steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats, Ints
from ..basics.layout import Layout
from ..basics.randomness import Purpose, fold, keys, to_tensor
from ..data.encoded import Pixels
from ..data.federated import FederatedData
from ..evaluation import Scorer, Split, scored
from ..exchange import Effort, Reply, Request, largest_norms
from ..methods import LocalRun, Method, Step, Upload, Vectors
from ..methods.base import overrides
from .batches import Batches, Plan
from .settings import LocalTraining

Numbers = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""`size`, `steps`, `per_epoch`, `samples` and `lr_sum` of a `LocalRun`."""

RoundNumbers = tuple[list[float] | Tensor, Numbers, Effort]


@dataclass
class Batch:
    """The samples of one step: `x` and `y` `[C, B, ...]`, `weights` `[C, B]` (a client's sum to 1), `keys` `[C]`."""

    x: Tensor
    y: Tensor
    weights: Tensor
    keys: Tensor


class Gradient(Protocol):
    """`gradient(w, batch, server_state)`: the gradient `[C, D]` of each client's loss over its batch at `w` `[C, D]`.

    What the method adds to the loss may need the vectors that were sent, `server_state`.
    """

    one: bool
    """Whether it takes one client at a time (C = 1)."""
    dropout: bool
    """Whether the model draws dropout, so that the steps need keys."""

    def __call__(self, w: Tensor, batch: Batch, server_state: Vectors) -> Tensor: ...

    def pieces(self, w: Tensor, batch: Batch, server_state: Vectors) -> Sequence[Tensor]:
        """The same gradients in the pieces in which they are computed, not copied into one vector."""
        ...

    def cut(self, w: Tensor) -> Sequence[Tensor]:
        """Views of a vector, cut like `pieces`."""
        ...

    def features(self) -> Tensor:
        """What entered the classifier in the last gradient, `[C, B, d]`, if the method's objective needs it."""
        ...


class Trainer:
    """Answers requests to clients whose samples it holds, by one method, with the gradients of one engine.

    An engine that compiles replaces `steps` by machine code for one shape: `unrolled` local steps at a time, of blocks
    padded to `padded` clients. With `normalises` a reply says FedNova's normalisers. `splits` are scored by `evaluate`.
    """

    def __init__(
        self,
        method: Method,
        local: LocalTraining,
        data: FederatedData,
        gradient: Gradient,
        scorer: Scorer,
        layout: Layout,
        *,
        seed: int,
        normalises: bool = False,
        splits: tuple[Split, ...] = (),
    ) -> None:
        self.method, self.local, self.data, self.gradient = method, local, data, gradient
        self._layout, self._scorer = layout, scorer
        self._like = torch.empty(0, dtype=layout.dtype, device=data.train.x.device)
        self.batches = Batches(local.cut, data.clients, seed=seed, like=self._like, numbers=data.numbers)
        self._in_pieces = not overrides(method, "direction") and local.clip is None
        self._has_after = overrides(method, "after_step")
        self.steps: Callable[..., None] = self._steps
        self.unrolled = 1
        self.padded = 0
        self._numbers = lru_cache(maxsize=64)(self._numbers_uncached)
        self._seed, self._normalises, self._splits = seed, normalises, splits

    @torch.no_grad()
    def answer(self, request: Request, places: Ints) -> Reply:
        """Do what the clients of a request are asked; `places` `[C]` are theirs in the whole request, for the reply.

        What is raised on the way, by a model or a loss say, gets a note that names the clients and the round.
        """
        try:
            upload, clients = getattr(self, request.job)(request)
            return Reply(places, upload, clients, largest_norms(upload, len(places)), self.effort(request))
        except Exception as error:
            doing = {"train": "training", "probe": "probing", "evaluate": "evaluating"}[request.job]
            error.add_note(f"while {doing} clients {request.ids.tolist()} in round {request.round + 1}")
            raise

    def effort(self, request: Request) -> Effort:
        """What the clients of a request to train do for it; for any other job nothing that counts."""
        if request.job == "train":
            return self._of_round(request)[2]
        none = np.zeros(len(request.ids), dtype=np.int64)
        return Effort(none, none)

    def steps_of(self, ids: Ints) -> Ints:
        """How many local steps these clients take in a round, but for a schedule of epochs."""
        return self.local.cut.numbers(self.batches.sizes[self.batches.rows(ids)], self.local.epochs)[0]

    @property
    def scored(self) -> list[str]:
        """The names of what `evaluate` sends."""
        return [name for split in self._splits for name in scored(split)]

    def train(self, request: Request) -> tuple[Upload, Vectors]:
        """Train the clients of a request; what they send up and remember from now on, in fresh tensors."""
        count = len(request.ids)
        if count < self.padded:
            request = request.only(np.minimum(np.arange(self.padded), count - 1))
        lr, local = self._begin(request)
        local.round_state = self.method.round_state(local)
        v = torch.zeros_like(local.w) if self.local.momentum else None
        plan = self.batches.plan(request.round, request.ids, self._epochs(request.round))
        plan = plan.client(0) if self.gradient.one else plan
        data = self._pixels(plan), self.data.train.y, request.sent
        for k, drawn in self._draws(request.round, request.ids, plan):
            self.steps(
                local.w, v, lr[k], *drawn, *data, vectors=(local.server_state, local.client_state, local.round_state)
            )
        upload, kept = self.method.upload(local)
        return _first(count, upload), _first(count, kept)

    def probe(self, request: Request) -> tuple[Upload, Vectors]:
        """What the clients of a request send before the training; they remember nothing of it."""
        return self.method.probe(self._begin(request)[1]), {}

    def evaluate(self, request: Request) -> tuple[Upload, Vectors]:
        """The `SCORES` `[C]` of the model on the samples of each client, by the splits that are asked for."""
        rows, data, none = self.batches.rows(request.ids), self.data, np.empty(0, dtype=np.int64)
        found: Vectors = {}
        for split in self._splits:
            of = data.clients if split == "clients" else data.held
            groups = [of[row] if len(of) else none for row in rows]
            scores = torch.from_numpy(self._scorer.scores(request.sent, data.train, groups))
            found |= dict(zip(scored(split), scores, strict=True))
        return found, {}

    def _begin(self, request: Request) -> tuple[list[float] | Tensor, LocalRun]:
        """The rate of each step, and the clients before the first one."""
        ids, sent, server_state = request.ids, request.sent, request.server_state
        lr, numbers, _ = self._of_round(request)
        w = sent.expand(len(ids), -1).clone()
        full_grad = partial(self._full_gradient, request.round, ids, server_state)
        return lr, LocalRun(
            request.round, w, sent, *numbers, server_state, request.client_state or {}, {}, self._layout, full_grad
        )

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
            grad = partial(self.gradient, batch=batch, server_state=vectors[0])
            labels = batch.y, batch.weights
            step = Step(w, sent, lr[k], *vectors, *labels, self._layout, grad, self.gradient.features)
            if self._in_pieces:
                cut = self.gradient.cut
                moments = repeat(None) if v is None else cut(v)
                for part in zip(cut(w), moments, self.gradient.pieces(w, batch, vectors[0]), strict=False):
                    self.local.advance(*part, lr[k])
            else:
                self.local.advance(w, v, self.method.direction(step), lr[k])
            if self._has_after:
                self.method.after_step(step)

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

    def _full_gradient(self, round: int, ids: Ints, server_state: Vectors, w: Tensor) -> Tensor:
        """Each client's gradient over all its samples, without augmentation, in chunks of the largest batch."""
        size = self.local.batch if self.local.batch != "full" else int(self.batches.sizes[self.batches.rows(ids)].max())
        plan = self.batches.whole(ids, size)
        x, y = self._pixels(plan), self.data.train.y
        total = torch.zeros_like(w)
        for _, drawn in self._draws(round, ids, plan):
            for index, weights, step_keys in zip(*drawn, strict=True):
                total += self.gradient(w, self._batch(index, weights, step_keys, x, y, augment=False), server_state)
        return total

    def _epochs(self, round: int) -> int:
        return self.local.schedule.epochs(round, self.local.epochs)

    def _of_round(self, request: Request) -> RoundNumbers:
        """What follows from the round and the sizes of a request's clients."""
        sizes = self.batches.sizes[self.batches.rows(request.ids)].tobytes()
        return self._numbers(self.local.schedule.lr(request.round, self.local.lr), self._epochs(request.round), sizes)

    def _numbers_uncached(self, lr: float, epochs: int, sizes_bytes: bytes) -> RoundNumbers:
        """Each step's learning rate, the numbers of a `LocalRun`, and the effort: the same in most rounds.

        The rates are a tensor `[K, C, 1]`; a single client's are plain floats, which take less time.
        """
        sizes = np.frombuffer(sizes_bytes, dtype=np.int64)
        steps, per_epoch, samples = self.batches.cut.numbers(sizes, epochs)
        rates = self.local.rates(lr, steps, self.method)
        column = self._column
        numbers = column(sizes), column(steps), column(per_epoch), column(samples), column(rates.sum(axis=0))
        normaliser = self.local.coefficients(lr, steps, self.method) if self._normalises else None
        effort = Effort(samples, steps, normaliser)
        return (rates[:, 0].tolist() if self.gradient.one else column(rates)), numbers, effort

    def _column(self, values: Ints | Floats) -> Tensor:
        return torch.from_numpy(values.copy()).to(self._like).unsqueeze(-1)


def _first(count: int, vectors: Vectors) -> Vectors:
    """The first `count` rows of each, without the padding."""
    return {name: rows if len(rows) == count else rows[:count] for name, rows in vectors.items()}
