"""The settings of local training: how a client moves on its own samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Floats, Ints
from ..basics.errors import MOST, check, check_count, check_positive, check_strength
from ..basics.typed import typed
from ..methods import Method
from ..methods.base import Scalar
from ..schedules import Constant, Flat, LocalSchedule, Schedule
from .batches import Batching, Workload

LONGEST = 100_000
"""The most epochs or steps of a client in one round: its steps are planned before the round begins."""


@dataclass(frozen=True)
@typed
class LocalTraining:
    """The local training of every client: SGD with learning rate `lr` and batches of `batch` samples.

    With the method's direction d, clipped to the norm `clip`, a step is that of PyTorch's SGD:

        v <- momentum * v + (d + weight_decay * w),    w <- w - lr * v          v = 0 at the start of every round

    A round has `epochs` passes over the client's samples, or else `steps` steps. The last, smaller batch of a pass is
    kept unless `drop_last`. `schedule` changes the rate by round, `local_schedule` within a round.
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
        check_strength("LocalTraining.lr", self.lr)
        valid = self.batch == "full" or 1 <= self.batch <= MOST
        check(valid, "LocalTraining.batch", self.batch, f'must be at least 1 and at most {MOST:,}, or "full"')
        check_count("LocalTraining.epochs", self.epochs, most=LONGEST)
        check_count("LocalTraining.steps", self.steps, most=LONGEST)
        right = "can't be combined with epochs, or with a schedule of epochs: set either steps or epochs"
        of_epochs = self.epochs != 1 or self.schedule.moves_epochs
        check(self.steps is None or not of_epochs, "LocalTraining.steps", self.steps, right)
        check(0 <= self.momentum < 1, "LocalTraining.momentum", self.momentum, "must be in [0, 1)")
        check_strength("LocalTraining.weight_decay", self.weight_decay)
        check_positive("LocalTraining.clip", self.clip)

    @property
    def batching(self) -> Batching:
        """How a client's samples are cut into batches."""
        return Batching(self.batch, self.steps, self.drop_last)

    def at(self, round: int) -> LocalTraining:
        """These settings with the learning rate and the epochs that `schedule` gives in `round` (from 0)."""
        if self.schedule == Constant():
            return self
        lr, epochs = self.schedule.lr(round, self.lr), self.schedule.epochs(round, self.epochs)
        return replace(self, lr=lr, epochs=epochs, schedule=Constant())

    def workload(self, sizes: Ints) -> Workload:
        """The workload of clients with `sizes` `[C]` samples in a round."""
        return self.batching.workload(sizes, self.epochs)

    def rates(self, steps: Ints, method: Method) -> Floats:
        """The learning rates `[K, C]` of clients that take `steps` `[C]` steps; 0 after a client's last step."""
        return self.lr * self._factors(steps, method)

    def coefficients(self, steps: Ints, method: Method) -> Floats:
        """FedNova's normalisers a_i `[C]` of clients that take `steps` `[C]` steps.

        a_i is the sum of the weights, in units of `lr`, with which a client's gradients enter its update. It equals the
        update that gradients of -1 would give, with the client's momentum and the method's proximal term. With f_k the
        factor of the schedules within a round in step k:

            v <- momentum * v + 1 - proximal * lr * a,    a <- a + f_k * v          v = a = 0 at first

        Weight decay is left out, as published.
        """
        moved = v = np.zeros(len(steps))
        for eta in self._factors(steps, method):
            v = self.momentum * v + 1 - method.proximal * self.lr * moved
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

    def _factors(self, steps: Ints, method: Method) -> Floats:
        """The factor of the schedules within a round on the learning rate of each step, `[K, C]`."""
        k = np.arange(steps.max())[:, None]
        schedules = filter(None, (self.local_schedule, method.local_schedule))
        return np.where(k < steps, np.prod([s.factors(k, steps) for s in schedules], axis=0), 0.0)
