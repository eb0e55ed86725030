"""The settings of local training: how a client moves on its own samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats, Ints
from ..basics.errors import check
from ..methods import Method
from ..methods.base import Scalar
from ..schedules import Constant, Flat, LocalSchedule, Schedule
from .batches import Cut


@dataclass(frozen=True)
class LocalTraining:
    """How every client trains: SGD with learning rate `lr` in batches of `batch` samples.

    A step follows the method's direction, clipped to norm `clip`, plus `weight_decay * w`, through an undamped
    `momentum` that starts at zero in every round (PyTorch's ServerSGD). A round is `epochs` passes over the client's
    samples, or else `steps` steps; the last, smaller batch of a pass is kept unless `drop_last`. `schedule` moves the
    rate by round, `local_schedule` within a round.
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
        check(self.lr >= 0, "LocalTraining.lr", self.lr, "must not be negative")
        check(
            self.batch == "full" or self.batch > 0, "LocalTraining.batch", self.batch, 'must be at least 1, or "full"'
        )
        check(self.epochs > 0, "LocalTraining.epochs", self.epochs, "must be at least 1")
        check(self.steps is None or self.steps > 0, "LocalTraining.steps", self.steps, "must be at least 1")
        right = "can't go with epochs, or with a schedule of epochs: a round is so many steps, or so many epochs"
        of_epochs = self.epochs != 1 or self.schedule.moves_epochs
        check(self.steps is None or not of_epochs, "LocalTraining.steps", self.steps, right)
        check(0 <= self.momentum < 1, "LocalTraining.momentum", self.momentum, "must be in [0, 1)")
        check(self.weight_decay >= 0, "LocalTraining.weight_decay", self.weight_decay, "must not be negative")
        check(self.clip is None or self.clip > 0, "LocalTraining.clip", self.clip, "must be positive")

    @property
    def cut(self) -> Cut:
        """How a client's training is cut into batches."""
        return Cut(self.batch, self.steps, self.drop_last)

    def rates(self, lr: float, steps: Ints, method: Method) -> Floats:
        """The learning rate of every step, `[K, C]`, in a round of rate `lr`; zero where a client has finished."""
        k = np.arange(steps.max())[:, None]
        schedules = filter(None, (self.local_schedule, method.local_schedule))
        return np.where(k < steps, lr * np.prod([s.factors(k, steps) for s in schedules], axis=0), 0.0)

    def coefficients(self, lr: float, steps: Ints, method: Method) -> Floats:
        """FedNova's normaliser a_i of clients that take `steps` `[C]` steps in a round of rate `lr`, `[C]`.

        It is the sum of the weights, in units of `lr`, with which a client's gradients enter its update: what the
        update would be for gradients of -1, by the recursion of its momentum and of the method's proximal term. Weight
        decay is left out, as published.
        """
        moved = v = np.zeros(len(steps))
        for eta in self.rates(1.0, steps, method):
            v = self.momentum * v + 1 - method.proximal * lr * moved
            moved = moved + eta * v
        return moved

    def advance(self, w: Tensor, v: Tensor | None, direction: Tensor, lr: Scalar) -> None:
        """Move `w` `[C, D]` (and the momentum `v`) by one step of ServerSGD, in place."""
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
