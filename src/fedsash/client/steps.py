"""The local steps: from the indices of the samples to the moved models. It has the only loop over local steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from ..data.encoded import Features
from ..data.inputs import ModelInput
from ..data.transform import Transform
from ..methods import Method, Step
from ..methods.base import Scalar
from ..settings.errors import SettingError
from ..settings.hooks import is_of_library
from ..vector.arrays import Vectors, check_like
from ..vector.layout import Layout
from .settings import LocalTraining


@dataclass
class Batch:
    """The batch of one step: `x` and `y` `[C, B, ...]`, `weights` `[C, B]` (0 for padding), `keys` `[C]`."""

    x: ModelInput
    y: Tensor
    weights: Tensor
    keys: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """The samples that C clients see in K steps, and the keys of all random numbers in these steps.

    `x` and `y` are all samples. `index` and `weights` `[K, C, B]` are those of a `BatchPlan`. `keys` is int64 `[K, C]`.
    Step k uses the first `widths[k]` of the B samples.
    """

    x: Features
    y: Tensor
    index: Tensor
    weights: Tensor
    keys: Tensor
    widths: Sequence[int]

    def only(self, steps: slice) -> Draws:
        """The draws of some of the steps."""
        return replace(
            self,
            index=self.index[steps],
            weights=self.weights[steps],
            keys=self.keys[steps],
            widths=self.widths[steps],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StepInputs:
    """All inputs of K local steps of C clients, in one object, so that an engine can compile the steps.

    The steps change `w`, the optimiser's `moments`, the running `statistics` of BatchNorm, if any, and the method's
    `round_state` in place. `rates` `[K, C, 1]` are the learning rates, and `numbers` `[K, C or 1, 1]` those of the
    steps, from 1; None if the optimiser does not need them. `received` `[C, d]` are the parameters that stay with the
    clients, as they were before the training; None if nothing stays. The other fields are those of `Step`; its `w` are
    the common parameters, which come first in this one.
    """

    w: Tensor
    moments: Vectors
    statistics: Tensor | None
    sent: Tensor
    rates: Tensor
    numbers: Tensor | None
    draws: Draws
    server_state: Vectors
    client_state: Vectors
    round_state: Vectors
    received: Tensor | None = None

    def only(self, steps: slice) -> StepInputs:
        """The inputs of some of the steps."""
        numbers = self.numbers
        if numbers is not None:
            numbers = numbers[steps]
        return replace(self, rates=self.rates[steps], numbers=numbers, draws=self.draws.only(steps))

    def moved(self) -> list[Tensor]:
        """All tensors that the steps change, in place."""
        tensors = [self.w]
        if self.statistics is not None:
            tensors.append(self.statistics)
        return [*tensors, *self.moments.values(), *self.round_state.values()]


Advance: TypeAlias = Callable[[Tensor, Vectors, Tensor, Scalar, Scalar], None]
"""Moves w and its moments by one step of the optimiser, in place (see `Optimiser.advance`)."""

Steps: TypeAlias = Callable[[StepInputs], None]
"""Takes the local steps of some clients, in place."""


class Gradient(Protocol):
    """`gradient(w, batch, server_state)`: the gradient `[C, D]` of each client's loss over its batch at `w` `[C, D]`.

    `server_state` are the vectors that the server sent; the method's `objective` may need them. The batch moves the
    running `statistics` `[C, s]` of BatchNorm in place, if they are given.
    """

    one: bool
    """Whether it takes one client at a time (C = 1)."""
    dropout: bool
    """Whether the model draws dropout, so that the steps need keys."""

    def __call__(self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None) -> Tensor: ...

    def pieces(
        self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None
    ) -> Sequence[Tensor]:
        """The same gradients as the separate tensors in which they are computed, not copied into one vector."""
        ...

    def views(self, w: Tensor) -> Sequence[Tensor]:
        """Views of a vector `[C, D]`, one for each of the `pieces`."""
        ...

    def features(self) -> Tensor:
        """The inputs of the classifier in the last gradient, `[C, B, d]`, if the method has an `objective`."""
        ...


class StepGradient:
    """`grad(w)` of one step for a method: the gradient `[C, S]` at the parameters `w` `[C, S]` that it sees, `part`.

    Only the first call moves the statistics, so a batch counts once. It also gives the gradient of the parameters after
    the part, which the method does not see.
    """

    def __init__(self, gradient: Gradient, batch: Batch, inputs: StepInputs, part: slice, seen: Tensor) -> None:
        self._gradient = gradient
        self._batch = batch
        self._inputs = inputs
        self._part = part
        self._seen = seen
        self._statistics = inputs.statistics
        self._rest: Tensor | None = None

    def __call__(self, w: Tensor) -> Tensor:
        inputs = self._inputs
        part = self._part
        statistics = self._statistics
        self._statistics = None
        if w.shape[1] == inputs.w.shape[1]:
            return self._gradient(w, self._batch, inputs.server_state, statistics)
        whole = inputs.w
        if w is not self._seen:
            whole = torch.cat([inputs.w[:, : part.start], w, inputs.w[:, part.stop :]], dim=1)
        g = self._gradient(whole, self._batch, inputs.server_state, statistics)
        if self._rest is None:
            self._rest = g[:, part.stop :]
        return g[:, part]

    def at_sent(self) -> Tensor:
        """The gradient `[C, S]` at the received model, with what stays with the clients as they received it."""
        inputs = self._inputs
        whole = inputs.sent.expand_as(self._seen)
        if inputs.received is not None:
            whole = torch.cat([whole, inputs.received], dim=1)
        return self._gradient(whole, self._batch, inputs.server_state, None)[:, self._part]

    def completed(self, direction: Tensor) -> Tensor:
        """The direction `[C, D]` of all that trains, from the method's for the parameters that come first."""
        if self._rest is None:
            return direction
        return torch.cat([direction, self._rest], dim=1)


class LocalSteps:
    """Takes the local steps of a method. A step gathers a batch, asks the method for a direction, and moves `w`.

    The entries `moves` move, or with None all of them. The method sees the first of these, the parameters of `layout`.
    The others of these move along their gradient. `prepares` says whether the `transform` changes samples at all before
    they are inputs.
    """

    def __init__(
        self,
        *,
        method: Method,
        local: LocalTraining,
        gradient: Gradient,
        transform: Transform,
        prepares: bool,
        layout: Layout,
        moves: slice | None = None,
    ) -> None:
        self._method = method
        self._local = local
        self._gradient = gradient
        self._transform = transform
        self._augments = transform.augments
        self._prepares = prepares
        self._layout = layout
        start = 0
        if moves is not None:
            start = moves.start
        self._part = slice(start, start + layout.size)
        self._moves = moves
        has_direction = "direction" in method.overridden
        self._has_after = "after_step" in method.overridden
        # Other methods would never look at a step.
        self._makes_steps = has_direction or self._has_after
        own_optimiser = not is_of_library(local.optimiser)
        own_method = self._makes_steps and not is_of_library(method)
        # Each tensor of a plain gradient moves by itself: to join them into one vector would be a copy in every step.
        # An optimiser of the user's own may take the norm of a whole direction.
        self._in_pieces = not has_direction and local.clip is None and moves is None and not own_optimiser
        self._optimiser_advance: Advance = local.optimiser.advance
        if own_optimiser:
            self._optimiser_advance = self._checked_advance
        self._advance = self._optimiser_advance
        if local.clip is not None:
            self._advance = self._clipped_advance
        # Padded steps are without a gradient, but would change moments that last beyond the round, and whatever code of
        # the user's own moves: it need not know of them.
        self._keep_moments = local.keep_moments
        self._watches = own_method or own_optimiser
        self._holds = (self._keep_moments or self._watches) and not gradient.one

    def __call__(self, inputs: StepInputs) -> None:
        """Take all the steps, in place."""
        w = inputs.w
        seen = w
        if self._layout.size != w.shape[1]:
            seen = w[:, self._part]
        moving = w
        moments = inputs.moments
        if self._moves is not None:
            moving = w[:, self._moves]
            moments = {name: rows[:, self._moves] for name, rows in moments.items()}

        # The parts that move together, each with its moments: the tensors of a plain gradient, or all as one.
        parts = [(moving, moments)]
        if self._in_pieces:
            views = [self._gradient.views(whole) for whole in (w, *moments.values())]
            parts = []
            for part, *rows in zip(*views, strict=True):
                parts.append((part, dict(zip(moments, rows, strict=True))))

        # Plain numbers are faster than tensors of one.
        rates: Sequence[Scalar] | Tensor = inputs.rates
        numbers: Sequence[Scalar] | Tensor | None = inputs.numbers
        if self._gradient.one:
            rates = inputs.rates.flatten().tolist()
            if inputs.numbers is not None:
                numbers = inputs.numbers.flatten().tolist()

        for k in range(len(rates)):
            batch = self._batch(inputs.draws, k, self._augments)
            lr = rates[k]
            n: Scalar = 1
            if numbers is not None:
                n = numbers[k]
            before: Vectors = {}
            if self._holds:
                held = self._held(moving, moments, inputs.round_state)
                before = {name: rows.clone() for name, rows in held.items()}
            step = None
            if self._makes_steps:
                step = self._step(inputs, batch, lr, seen)
            if self._in_pieces:
                directions = self._gradient.pieces(w, batch, inputs.server_state, inputs.statistics)
            else:
                directions = [self._direction(inputs, batch, step)[:, : moving.shape[1]]]
            for (part, moments_of_part), direction in zip(parts, directions, strict=True):
                self._advance(part, moments_of_part, direction, lr, n)
            if step is not None and self._has_after:
                self._method.after_step(step)
            if self._holds:
                after = self._held(moving, moments, inputs.round_state)
                for name, old in before.items():
                    if name in after:  # code of the user's own may have taken a vector out
                        _keep_of_finished(old, after[name], batch)

    def _held(self, moving: Tensor, moments: Vectors, round_state: Vectors) -> Vectors:
        """What a client without steps left keeps, `[C, ...]` each: kept moments, and what code of the user's own may
        move."""
        held: Vectors = {}
        if self._keep_moments:
            held |= {f"moments/{name}": rows for name, rows in moments.items()}
        if self._watches:
            held["w"] = moving
            for name, rows in round_state.items():
                if rows.shape[:1] == moving.shape[:1]:
                    held[f"round_state/{name}"] = rows
        return held

    def _batch(self, draws: Draws, k: int, augment: bool) -> Batch:
        """Gather, augment and prepare the samples of step k."""
        width = draws.widths[k]
        keys = draws.keys[k]
        index = draws.index[k, :, :width]
        flat = index.reshape(-1)
        x = draws.x.index_select(0, flat)
        y = draws.y.index_select(0, flat)
        if augment:
            places = torch.arange(1, width + 1, device=keys.device)
            x = self._transform.augment(x, (keys[:, None] + (places << 32)).reshape(-1))
        if self._prepares:
            x = self._transform.inputs(x, self._layout.dtype)
        if isinstance(x, Tensor):
            x = x.view(index.shape + x.shape[1:])
        else:
            x = {name: part.view(index.shape + part.shape[1:]) for name, part in x.items()}
        return Batch(x, y.view(index.shape + y.shape[1:]), draws.weights[k, :, :width], keys)

    def _direction(self, inputs: StepInputs, batch: Batch, step: Step | None) -> Tensor:
        """The direction `[C, D]` of what the method sees, and of all that comes after it."""
        if step is None:
            gradient = self._gradient(inputs.w, batch, inputs.server_state, inputs.statistics)
            return gradient[:, self._part.start :]
        direction = check_like(self._method, "direction", self._method.direction(step), step.w)
        assert isinstance(step.grad, StepGradient)
        return step.grad.completed(direction)

    def _clipped_advance(self, w: Tensor, moments: Vectors, direction: Tensor, lr: Scalar, n: Scalar) -> None:
        """Clip the direction `[C, D]`, and take step `n` of the optimiser along it (see `Optimiser.advance`)."""
        norm = torch.linalg.vector_norm(direction, dim=1, keepdim=True)
        direction = direction * (self._local.clip / norm).clamp(max=1.0)
        self._optimiser_advance(w, moments, direction, lr, n)

    def _checked_advance(self, w: Tensor, moments: Vectors, direction: Tensor, lr: Scalar, n: Scalar) -> None:
        """Take a step of an optimiser of the user's own; raises `SettingError` unless it works in place."""
        optimiser = self._local.optimiser
        before = dict(moments)
        returned: object = optimiser.advance(w, moments, direction, lr, n)  # type: ignore[func-returns-value]
        if returned is not None:
            requirement = "must return nothing, and move w in place, as by w.sub_(lr * g)"
            raise SettingError.at(f"{type(optimiser).__name__}.advance", type(returned).__name__, requirement)
        for name, rows in before.items():
            if moments.get(name) is not rows:
                requirement = f"must move {name} in place, as by moments[{name!r}].mul_(0.9).add_(g)"
                raise SettingError.at(f"{type(optimiser).__name__}.advance", f"a new {name}", requirement)

    def _step(self, inputs: StepInputs, batch: Batch, lr: Scalar, seen: Tensor) -> Step:
        """A step as the method sees it, at the parameters `seen`."""
        grad = StepGradient(self._gradient, batch, inputs, self._part, seen)
        return Step(
            w=seen,
            sent=inputs.sent,
            lr=lr,
            server_state=inputs.server_state,
            client_state=inputs.client_state,
            round_state=inputs.round_state,
            y=batch.y,
            weights=batch.weights,
            layout=self._layout,
            grad=grad,
            grad_at_sent=grad.at_sent,
            features=self._gradient.features,
        )

    def full_gradient(self, w: Tensor, draws: Draws, server_state: Vectors) -> Tensor:
        """The gradient `[C, D]` at `w` `[C, D]`, summed over all steps of `draws`, without augmentation."""
        total = torch.zeros_like(w)
        for k in range(len(draws.index)):
            total += self._gradient(w, self._batch(draws, k, augment=False), server_state)
        return total


def _keep_of_finished(before: Tensor, after: Tensor, batch: Batch) -> None:
    """Set the rows `[C, ...]` of clients without steps left back to those before a step, in place.

    Such a client's batch has no first sample.
    """
    has_steps_left = batch.weights[:, 0] > 0
    of_rows = has_steps_left.view(-1, *[1] * (after.dim() - 1))
    after.copy_(torch.where(of_rows, after, before))
