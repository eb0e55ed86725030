"""Curves: the values of the metric that decides, by model and round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..tasks import Criterion

SPLITS = {
    "test": "the test set",
    "held_out": "held-out data",
    "client_test": "the clients' own test samples",
    "held_out_tuned": "held-out data, after fine-tuning",
    "client_test_tuned": "the clients' own test samples, after fine-tuning",
    "clients": "the clients' training samples",
}
"""The splits on which models are scored, and their names."""
COMPARED = ("test", "held_out", "client_test")
"""The splits on which models are compared, on the first one that a run has."""
NOT_EVALUATED = "no evaluation: none is due yet, or there is no test set, and evaluation.held_out is 0"
"""What tables and pages say of a run without curves."""
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
        split = split or next((name for name in COMPARED if name in there), "test")
        found: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["split"] == split:
                value = row.get(criterion.name)
                found.setdefault(row["model"], {})[row["round"]] = _finite(value)
        return cls(criterion, split, {model: dict(sorted(points.items())) for model, points in found.items()})

    @property
    def title(self) -> str:
        """What the values are, such as "accuracy on the test set"."""
        return f"{self.criterion.name} on {SPLITS.get(self.split, self.split)}"

    @property
    def caption(self) -> str:
        """The title and the direction: "rmse on the test set; lower is better". Empty for the usual accuracy."""
        usual = self.criterion.name == "accuracy" and self.split == "test"
        return "" if usual else f"{self.title}; {self.criterion.better} is better"

    def __bool__(self) -> bool:
        return bool(self.models)


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """The mean. None if a value is undefined, which is None, NaN or infinite, or if there is no value."""
    each = list(values)
    defined = [value for value in each if value is not None and math.isfinite(value)]
    return fmean(defined) if defined and len(defined) == len(each) else None


def _finite(value: float | None) -> float:
    """The value, or NaN for one that is not finite: a file has None in its place."""
    return value if value is not None and math.isfinite(value) else math.nan
