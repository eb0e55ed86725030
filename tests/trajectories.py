"""Trajectories of models for tests, and averages that follow them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fedsash.averages import EMA, SWA, Average, Observer, State, Window

ONE_OF_EACH: list[Average] = [
    Window(1),
    Window(3),
    Window(3, every=2, start=3),
    SWA(start=2),
    SWA(start=2, cycle=2, collect="top"),
    EMA(0.7),
    EMA(0.7, start="initial"),
    EMA(0.7, start="zero"),
]


def trajectory(rounds: int, d: int = 7, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """`w_0 ... w_rounds` `[rounds + 1, d]`: a random walk, as training is."""
    steps = torch.randn(rounds + 1, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (steps * 0.01).cumsum(0).to(dtype)


def follow(average: Average | Observer, models: Tensor, folder: Path | None = None) -> State:
    """The state after all rounds of a trajectory."""
    state = average.init(models[0], folder)
    for round, w in enumerate(models[1:], start=1):
        state = average.observe(state, w, round)
    return state


def final(average: Average | Observer, models: Tensor, folder: Path | None = None) -> Tensor:
    return average.value(follow(average, models, folder), models[-1])


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
