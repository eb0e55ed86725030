"""Histories of runs for tests of reports: the rows of evaluations, criteria, and six models' accuracies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedsash.evaluation import History, Row, record_of
from fedsash.tasks import Criterion

SIX = {"model": 0.712, "window5": 0.803, "window20": 0.811, "window100": 0.799, "ema": 0.805, "swa": 0.798}
ACCURACY = Criterion()
RMSE = Criterion("rmse", "lower", share=False, target=None)


def history_of(rows: Iterable[Row]) -> History:
    """The history that rows of `metrics.jsonl` hold."""
    return History(map(record_of, rows))


def history(
    models: dict[str, list[float | None]], every: int = 10, metric: str = "accuracy", split: str = "test"
) -> list[dict[str, Any]]:
    return [
        {"round": every * (i + 1), "model": name, "split": split, metric: value, "loss": 1.0}
        for name, values in models.items()
        for i, value in enumerate(values)
    ]


NO_TEST: list[dict[str, Any]] = [
    {"round": 1, "model": "model", "split": "guard", "refused": [1]},
    {"round": 10, "model": "model", "split": "clients", "accuracy": 0.5, "loss": 1.0},
]
