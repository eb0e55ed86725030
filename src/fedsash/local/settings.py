"""The settings of local training: how a client moves on its own samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..aggregation import Aggregation
from ..basics.arrays import Floats, Ints, Vectors
from ..basics.errors import MOST, check, check_count, check_positive, check_strength
from ..basics.typed import typed
from ..methods import Method
from ..methods.base import Scalar
from ..schedules import Constant, Flat, LocalSchedule, Schedule
from .batches import Batching, Workload
from .optimisers import SGD, Optimiser

KEPT = "optimiser_"
"""Before the names of kept moments among the client state."""

STEPS = f"{KEPT}steps"
"""How many steps a client has taken since its kept moments began, `[1]`; only if the optimiser counts them."""

LONGEST = 100_000
"""The most epochs or steps of a client in one round: its steps are planned before the round begins."""


@dataclass(frozen=True)
@typed
class LocalTraining:
    """The local training of every client: `optimiser` with learning rate `lr` and batches of `batch` samples.

    In each step the method gives a direction. It is clipped to the norm `clip`, and the optimiser moves the model along
    it. The optimiser's moments begin anew in every round, as in the codes of FedJAX, FedDyn and FedIMA. With
    `keep_moments` they are client state, so a client continues from those of its last round.

    A round has `epochs` passes over the client's samples, or else `steps` steps. The last, smaller batch of a pass is
    kept unless `drop_last`. `schedule` changes the rate by round, `local_schedule` within a round.
    """

    lr: float = 0.1
    batch: int | Literal["full"] = 32
    epochs: int = 1
    steps: int | None = None
    optimiser: Optimiser = field(default_factory=SGD)
    keep_moments: bool = False
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
        check_positive("LocalTraining.clip", self.clip)

    def fits(self, method: Method, aggregation: Aggregation) -> None:
        """Raise `SettingError` if the method or the aggregation rests on another local optimiser."""
        nova = "FedNova's normalisers follow its steps" if aggregation.normalises else ""
        why = method.needs_sgd or nova
        check(
            not why or isinstance(self.optimiser, SGD), "LocalTraining.optimiser", self.optimiser, f"must be sgd: {why}"
        )
        right = "must be false: FedNova's normalisers count the gradients of one round"
        check(not (nova and self.keep_moments), "LocalTraining.keep_moments", self.keep_moments, right)

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

        a_i is the sum of the weights, in units of `lr`, with which a client's gradients enter its update. It is how far
        gradients of 1 take a client, with its optimiser's momentum, the method's proximal term, and the schedules
        within a round. Weight decay is left out, as published.
        """
        assert isinstance(self.optimiser, SGD)
        plain, below = replace(self.optimiser, weight_decay=0.0), torch.zeros(len(steps), 1, dtype=torch.float64)
        moments = plain.moments(below)
        for k, factor in enumerate(torch.from_numpy(self._factors(steps, method)).unsqueeze(-1)):
            plain.advance(below, moments, 1 + method.proximal * self.lr * below, factor, k + 1)
        return -below[:, 0].numpy()

    def client_state(self, method: Method, w: Tensor) -> Vectors:
        """What a client remembers before its first round: the method's vectors, and the moments if they are kept.

        `w` `[D]` is the initial model.
        """
        if not self.keep_moments:
            return method.client_state(w)
        moments = {KEPT + name: own[0] for name, own in self.optimiser.moments(w.unsqueeze(0)).items()}
        return method.client_state(w) | moments | ({STEPS: torch.zeros_like(w[:1])} if self.optimiser.counted else {})

    def recalled(self, w: Tensor, client_state: Vectors) -> Vectors:
        """The moments `[C, D]` before the first step of a round, as new tensors, for models `w` `[C, D]`."""
        begun = self.optimiser.moments(w)
        return {name: client_state[KEPT + name].clone() for name in begun} if self.keep_moments else begun

    def remembered(self, moments: Vectors, steps: Tensor, client_state: Vectors) -> Vectors:
        """The client state of the moments after `steps` `[C, 1]` more steps; empty if they begin anew."""
        kept = {KEPT + name: own for name, own in moments.items()} if self.keep_moments else {}
        return kept | ({STEPS: client_state[STEPS] + steps} if STEPS in client_state else {})

    def advance(self, w: Tensor, moments: Vectors, direction: Tensor, lr: Scalar, n: Scalar) -> None:
        """Clip the direction `[C, D]`, and take step `n` of the optimiser along it (see `Optimiser.advance`)."""
        if self.clip is not None:
            norm = torch.linalg.vector_norm(direction, dim=1, keepdim=True)
            direction = direction * (self.clip / norm).clamp(max=1.0)
        self.optimiser.advance(w, moments, direction, lr, n)

    def _factors(self, steps: Ints, method: Method) -> Floats:
        """The factor of the schedules within a round on the learning rate of each step, `[K, C]`."""
        k = np.arange(steps.max())[:, None]
        schedules = filter(None, (self.local_schedule, method.local_schedule))
        return np.where(k < steps, np.prod([s.factors(k, steps) for s in schedules], axis=0), 0.0)
