"""The rows of a run that are still to be sent, and the numbers in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from ...evaluation import Row
from .. import LiveRun


@dataclass
class Rows:
    """Gives each row of a run's history once."""

    sent: int = 0
    """the number of rows that were given"""

    @classmethod
    def of(cls, run: LiveRun) -> Rows:
        """The rows from the beginning of a session on. A new fork also gives those of the run that it continues."""
        return cls(len(run.history) if run.resumed else 0)

    def new(self, run: LiveRun) -> Iterator[Row]:
        """The rows that have been recorded since the last call."""
        new = run.history[self.sent :]
        self.sent = len(run.history)
        yield from new.rows()


def by_round(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, dict[str, float]]]:
    """The numbers of each round, `named`, of rows in the order of rounds."""
    for index, same in groupby(rows, key=itemgetter("round")):
        yield index, {name: value for row in same for name, value in named(row).items()}


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row by name: the loss, metrics, epsilon and so on, without its round."""
    return {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and name != "round"
    }


def named(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by names such as `wima/test/accuracy`."""
    return {f"{row['model']}/{row['split']}/{name}": value for name, value in numbers(row).items()}
