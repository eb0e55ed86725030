"""Times a peer's rounds from within. NumPy only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .works import Given, Work


class Enough(Exception):
    """The time of measuring is over."""


class Clock:
    """Told of every round. Leaves by `Enough`, with one line of JSON on the standard output.

    The first `work.warm` rounds are not timed. After `work.rounds` rounds the parameters are saved, for the loss; this
    takes no time of the measurement. Rounds are timed for at least `seconds`, and once at least.
    """

    def __init__(self, given: Given, saved: str, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self._work: Work = given.work
        self._saved = saved
        self._seconds = seconds
        self._now = now
        self._round = self._samples = 0
        self._began = 0.0
        self.also: dict[str, Any] = {}

    def round(self, samples: int, parameters: Callable[[], Sequence[Any]]) -> None:
        """A round with so many samples is over. `parameters` gives the model's, as NumPy arrays."""
        at = self._now()
        self._round += 1
        if self._round > self._work.warm:
            self._samples += samples
        if self._round == self._work.rounds:
            np.savez(self._saved, *parameters())
        took = at - self._began
        timed = self._round - self._work.warm
        if self._round >= self._work.rounds and timed > 0 and took >= self._seconds:
            found = {"rounds/s": timed / took, "samples/s": self._samples / took, **self.also}
            print(json.dumps(found), flush=True)
            raise Enough
        paused = self._now() - at
        self._began = self._now() if timed <= 0 else self._began + paused
