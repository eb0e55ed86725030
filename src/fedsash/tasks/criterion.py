"""The criterion: the number that decides between models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .metrics import Better

TARGET = 0.8
"""The target of an accuracy, unless the evaluation names another one."""


@dataclass(frozen=True)
class Criterion:
    """The number that decides between models: its name, whether higher or lower is better, and a target.

    `share` says whether it is shown in per cent. A number that is None or NaN is never better than another one.
    """

    name: str = "accuracy"
    better: Better = "higher"
    share: bool = True
    target: float | None = TARGET

    def wins(self, a: float | None, b: float | None) -> bool:
        """Whether `a` is better than `b`."""
        if a is None or math.isnan(a):
            return False
        return b is None or math.isnan(b) or (a > b if self.better == "higher" else a < b)

    def best(self, values: Mapping[Any, float]) -> Any:
        """The first key with the best value; None if no value is a number."""
        best = None
        for key, value in values.items():
            if self.wins(value, None if best is None else values[best]):
                best = key
        return best

    def reached(self, value: float | None) -> bool:
        """Whether a value reaches the target."""
        if self.target is None or value is None or math.isnan(value):
            return False
        return value >= self.target if self.better == "higher" else value <= self.target
