"""The rounds of Flower's FedAvg and FedAvgM with an average and a broadcast, plainly in NumPy, by the replies alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .vectors import Model


def window(models: Sequence[Model], size: int) -> Model:
    """The mean of the last `size` models."""
    mean: Model = np.mean(models[-size:], axis=0)
    return mean


def ema(models: Sequence[Model], decay: float) -> Model:
    """The exponential moving average of models, which begins with the first of them."""
    average = models[0]
    for model in models[1:]:
        average = decay * average + (1 - decay) * model
    return average


@dataclass
class Replay:
    """Models `[D]` round by round, from the `first` one, and their average, that `average_of` makes of one or more.

    In round r clients receive s_r: the average, if it is broadcast, from the model after `start` rounds on (0: never),
    and otherwise the last model. With m_r the mean of their models, weighted by their numbers of samples,

        v <- momentum * v + (b - m_r),    w_r = b - rate * v,    v = 0 at first,

    where b is s_r if the average was broadcast, and the last model otherwise. FedAvg has the rate 1 and no momentum. A
    round whose model is not finite changes nothing. `sent` and `served` have s_r, and the average after round r.
    """

    first: Model
    average_of: Callable[[Sequence[Model]], Model]
    start: int
    rate: float
    momentum: float
    models: list[Model] = field(default_factory=list)
    sent: dict[int, Model] = field(default_factory=dict)
    served: dict[int, Model] = field(default_factory=dict)
    _velocity: Model | None = None

    def make(self, rounds: int, replies: Mapping[int, Sequence[Any]]) -> None:
        """Make all rounds."""
        for round in range(1, rounds + 1):
            base = self.model
            if self.start and round > self.start:
                base = self.average
            self.sent[round] = base
            self._step(base, [reply.content for reply in replies.get(round, ()) if reply.has_content()])
            self.served[round] = self.average

    @property
    def model(self) -> Model:
        """The last model."""
        return self.models[-1] if self.models else self.first

    @property
    def average(self) -> Model:
        """The average of the models; the first model before there is one."""
        if not self.models:
            return self.first
        return self.average_of(self.models)

    def _step(self, base: Model, replies: Sequence[Any]) -> None:
        if not replies:
            return
        samples = [reply["metrics"]["num-examples"] for reply in replies]
        mean = np.average([reply["arrays"]["w"].numpy() for reply in replies], axis=0, weights=samples)
        velocity = base - mean
        if self._velocity is not None:
            velocity = velocity + self.momentum * self._velocity
        model = base - self.rate * velocity
        if np.isfinite(model).all():
            self.models.append(model)
            self._velocity = velocity
