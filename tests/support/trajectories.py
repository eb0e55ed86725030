"""Trajectories of models for tests, and averages that follow them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fedsash.averages import BEMA, EMA, SWA, Average, Observer, PowerEMA, Window
from fedsash.testing.averages import Alone, follow, trajectory

__all__ = ["ONE_OF_EACH", "Alone", "final", "follow", "same_bits", "trajectory"]

ONE_OF_EACH: list[Average] = [
    Window(1),
    Window(3),
    Window(3, every=2, start=3),
    SWA(start=3),
    SWA(start=3, cycle=2, collect="top"),
    EMA(0.7),
    EMA(0.7, start="initial"),
    EMA(0.7, start="zero"),
    BEMA(),
    BEMA(every=2, start=3),
    PowerEMA(),
]


def final(average: Average | Observer, models: Tensor, folder: Path | None = None) -> Tensor:
    return follow(average, models, folder).value(models[-1])


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
