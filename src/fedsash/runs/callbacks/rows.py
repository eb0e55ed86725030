"""The numbers in the records of a run, as trackers take them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from ...evaluation import History


def run_name(name: str, folder: Path | None) -> str:
    """A run's name at a tracker: the `name` that is set, or else that of its folder; empty without either."""
    if name or folder is None:
        return name
    return folder.resolve().name


def by_round(history: History) -> Iterator[tuple[int, dict[str, float]]]:
    """The numbers of each round, by names such as `wima/test/accuracy`."""
    for index, rows in groupby(history.rows(), key=itemgetter("round")):
        values = {}
        for row in rows:
            for name, value in numbers(row).items():
                values[f"{row['model']}/{row['split']}/{name}"] = value
        yield index, values


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row by name: the loss, metrics, epsilon and so on, without its round."""
    values = {}
    for name, value in row.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and math.isfinite(value) and name != "round":
            values[name] = float(value)
    return values
