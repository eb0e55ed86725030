"""The sliding window over the models of successive rounds: WiMA, and LAWA."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from .. import storage as storages
from ..checks import check
from . import sums
from .base import Average, State, check_vector


@dataclass(frozen=True)
class Window(Average):
    """The mean of the last `size` models (WiMA, Caldarola et al. 2023; with `every` > 1 LAWA, Kaddour 2022).

    With W = `size` and all rounds observed, after round t (eq. 4 of WiMA, whose t + 1 is our t):

        wima_t = (1/W) * sum_{tau = t-W+1}^{t} w_tau

    While fewer than W models have been observed it is the mean of those there are (the paper leaves this open); before
    the first it is the current model. Only rounds from `start` on whose number is a multiple of `every` are observed:
    `every = 1` is WiMA; `every = k` averages checkpoints k rounds or steps apart, which is LAWA. IMA feeds a window of
    P = `size` models back to the clients; that is a matter of the run (`feed`), not of the window.

    A round costs the same whatever the size: the sum gains the new model and loses the oldest. It is kept at twice
    float64's precision (see `sums`), so the mean is the exact one to one rounding, also after 10,000 rounds and after
    values a billion times larger have passed through. The mean of a single model is that model, bitwise.

    `storage` is where the models lie: `"device"`, `"host"`, `"disk"`, or `"auto"` (see `storage.rows`).

    State: `models` `[size, d]` in the model's type, a ring; `rounds` int64 `[size]`, the round of the model in each
    slot, -1 = empty; `seen` int64 `[]`, how many models were ever taken; `high`, `low` float64 `[d]`, the sum.
    """

    size: int
    every: int = 1
    start: int = 1
    storage: storages.Storage = "auto"

    def __post_init__(self) -> None:
        for name in ("size", "every", "start"):
            check(getattr(self, name) >= 1, f"Window.{name}", getattr(self, name), "must be at least 1")
        known = get_args(storages.Storage)
        check(self.storage in known, "Window.storage", self.storage, f"must be one of {', '.join(known)}")

    def init(self, w: Tensor, folder: Path | None = None) -> State:
        check_vector(w)
        return {
            "models": storages.rows(self.size, w, self.storage, folder),
            "rounds": torch.full((self.size,), -1),
            "seen": torch.tensor(0),
            "high": sums.zeros(w),
            "low": sums.zeros(w),
        }

    def observes(self, round: int) -> bool:
        return round >= self.start and round % self.every == 0

    def count(self, state: State) -> int:
        return int((state["rounds"] >= 0).sum())

    def retract(self, state: State, round: int) -> State:
        """Take the model of `round` out again: its slot is empty from now on, and the mean is over the rest.

        Nothing of the model remains. Raises `ValueError` if the window doesn't hold that round.
        """
        rounds = state["rounds"]
        held = sorted(r for r in rounds.tolist() if r >= 0)
        check(round in held, "Window.retract: round", round, f"not in the window, which holds {held or 'none'}")
        slot = int((rounds == round).nonzero()[0])
        sums.add(state["high"], state["low"], minus=state["models"][slot])
        state["models"][slot].zero_()
        rounds[slot] = -1
        return state

    def _take(self, state: State, w: Tensor, round: int) -> None:
        slot = int(state["seen"]) % self.size
        model = state["models"][slot]
        oldest = model if state["rounds"][slot] >= 0 else None
        sums.add(state["high"], state["low"], plus=w, minus=oldest)
        model.copy_(w)
        state["rounds"][slot] = round
        state["seen"] += 1

    def _mean(self, state: State, w: Tensor) -> Tensor:
        held = (state["rounds"] >= 0).nonzero()
        if len(held) == 1:
            return state["models"][int(held[0])].to(w.device, copy=True)
        return sums.mean(state["high"], state["low"], len(held), w)
