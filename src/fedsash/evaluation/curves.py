"""Curves: the values of the metric that decides, by model and round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..tasks import Criterion

PLACES = {"test": "the test set", "held_out": "held-out data"}
"""The splits on which models are compared, the first one that a run has, and their names."""
Models = Mapping[str, Mapping[int, float]]
"""Each model's values by round, ascending."""


@dataclass(frozen=True)
class Curves:
    """Each model's values of the `criterion` by round, on the test set or, without one, on held-out data (`split`)."""

    criterion: Criterion
    split: str
    models: Models

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], criterion: Criterion, split: str = "") -> Curves:
        """The curves in a run's rows; with `split`, those of this split. A value that is not finite is NaN."""
        rows = list(rows)
        there = {row["split"] for row in rows}
        split = split or next((name for name in PLACES if name in there), "test")
        found: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["split"] == split:
                value = row.get(criterion.name)
                finite = value is not None and math.isfinite(value)
                found.setdefault(row["model"], {})[row["round"]] = value if finite else math.nan
        return cls(criterion, split, {model: dict(sorted(points.items())) for model, points in found.items()})

    @property
    def title(self) -> str:
        """What the values are, such as "accuracy on the test set"."""
        return f"{self.criterion.name} on {PLACES.get(self.split, self.split)}"

    def __bool__(self) -> bool:
        return bool(self.models)
