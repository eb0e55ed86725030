"""The rounds of Flower's FedAvg and FedAvgM with a window and a broadcast, plainly in NumPy, by the replies alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Model = NDArray[np.float64]


@dataclass
class Replay:
    """Models `[D]` round by round, from the `first` one. All averages are windows of the last `size` models.

    In round r clients receive s_r: the window, if it is broadcast, from the model after `start` rounds on (0: never),
    and otherwise the last model. With m_r the mean of their models, weighted by their numbers of samples,

        v <- momentum * v + (b - m_r),    w_r = b - rate * v,    v = 0 at first,

    where b is s_r if the window was broadcast, and the last model otherwise. FedAvg has the rate 1 and no momentum. A
    round whose model is not finite changes nothing. `sent` and `served` have s_r, and the window after round r.
    """

    first: Model
    size: int
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
                base = self.window
            self.sent[round] = base
            self._step(base, [reply.content for reply in replies.get(round, ()) if reply.has_content()])
            self.served[round] = self.window

    @property
    def model(self) -> Model:
        """The last model."""
        return self.models[-1] if self.models else self.first

    @property
    def window(self) -> Model:
        """The mean of the last models; the first model before there is one."""
        if not self.models:
            return self.first
        mean: Model = np.mean(self.models[-self.size :], axis=0)
        return mean

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
