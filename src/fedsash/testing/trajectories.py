"""Trajectories of models, and averages that observe them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..averages import Average, Observer, Observers
from ..vector.arrays import Vectors


def trajectory(rounds: int, d: int = 7, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Models `w_0 ... w_rounds` `[rounds + 1, d]`: a random walk."""
    steps = torch.randn(rounds + 1, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (steps * 0.01).cumsum(0).to(dtype)


class Alone:
    """One average, or one of a slice, that observes a trajectory without a federation. `folder` holds rows on disk."""

    def __init__(self, average: Average | Observer, w: Tensor, folder: Path | None = None) -> None:
        observer = average if isinstance(average, Observer) else Observer(average, [(0, len(w))])
        self._observers = Observers({"it": observer})
        self.averages, self.past = self._observers.init(w, folder)

    @property
    def state(self) -> Vectors:
        """The state of the average."""
        return self.averages["it"]

    @property
    def held(self) -> Mapping[int, Tensor]:
        """The past models that it needs."""
        return self.past.get("it", {})

    @property
    def count(self) -> int:
        """The number of models in the average."""
        return self._observers.count(self, "it")

    def observe(self, w: Tensor, round: int) -> Alone:
        """Offer it the model `w` `[d]` of `round`. Returns itself."""
        self._observers.observe(self, w, round)
        return self

    def value(self, w: Tensor) -> Tensor:
        """Its value `[d]` when `w` is the current model."""
        return self._observers.value(self, "it", w)

    def retract(self, round: int) -> Alone:
        """Remove the model of `round`. Returns itself."""
        self._observers.retract(self, "it", round)
        return self


def follow(average: Average | Observer, models: Tensor, folder: Path | None = None) -> Alone:
    """The average after all rounds of a trajectory `[rounds + 1, d]`. The first model is not observed."""
    alone = Alone(average, models[0], folder)
    for round, w in enumerate(models[1:], start=1):
        alone.observe(w, round)
    return alone
