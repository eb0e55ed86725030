"""Trajectories of models for tests, and averages that follow them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedsash.averages import EMA, SWA, Average, Observer, Observers, Window
from fedsash.basics.arrays import Vectors

ONE_OF_EACH: list[Average] = [
    Window(1),
    Window(3),
    Window(3, every=2, start=3),
    SWA(start=3),
    SWA(start=3, cycle=2, collect="top"),
    EMA(0.7),
    EMA(0.7, start="initial"),
    EMA(0.7, start="zero"),
]


def trajectory(rounds: int, d: int = 7, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """`w_0 ... w_rounds` `[rounds + 1, d]`: a random walk, as training is."""
    steps = torch.randn(rounds + 1, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (steps * 0.01).cumsum(0).to(dtype)


class Alone:
    """One average, or one of a slice, that follows a trajectory by itself."""

    def __init__(self, average: Average | Observer, w: Tensor, folder: Path | None = None) -> None:
        observer = average if isinstance(average, Observer) else Observer(average, [(0, len(w))])
        self._observers = Observers({"it": observer})
        self.averages, self.past = self._observers.init(w, folder)

    @property
    def state(self) -> Vectors:
        return self.averages["it"]

    @property
    def held(self) -> Mapping[int, Tensor]:
        """The past models that it needs."""
        return self.past["it"]

    @property
    def count(self) -> int:
        return self._observers.count(self, "it")

    def observe(self, w: Tensor, round: int) -> Alone:
        self._observers.observe(self, w, round)
        return self

    def value(self, w: Tensor) -> Tensor:
        return self._observers.value(self, "it", w)

    def retract(self, round: int) -> Alone:
        self._observers.retract(self, "it", round)
        return self


def follow(average: Average | Observer, models: Tensor, folder: Path | None = None) -> Alone:
    """The average after all rounds of a trajectory."""
    alone = Alone(average, models[0], folder)
    for round, w in enumerate(models[1:], start=1):
        alone.observe(w, round)
    return alone


def final(average: Average | Observer, models: Tensor, folder: Path | None = None) -> Tensor:
    return follow(average, models, folder).value(models[-1])


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
