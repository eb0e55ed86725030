"""What a paper says about its figure, and whether the figure's own numbers say so here."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from ..config import ConfigError
from ..config.errors import check_known
from ..config.words import shown
from .pick import keyed, listed, text

Place = float | str
KEYS = {
    "says": "what the paper says, in words of ours",
    "place": "where it says so",
    "number": "what is taken of a line: end, value, change, ratio, peak, lowest or spread; by default end",
    "at": "the places on the axis that the number needs",
    "lines": "the lines that are compared, the highest first; a list among them holds lines that are not compared",
    "less": "a line whose number is subtracted from the others",
    "between": "the lowest and the highest number that agree; without it, each line is above those that follow",
}
"""The keys of a statement, and what they mean."""


@dataclass(frozen=True)
class Series:
    """A line of a figure: its value at each place. Its end is the mean of its `last` values."""

    values: Mapping[Place, float]
    last: int = 1

    def at(self, place: Place) -> float:
        """The value at a label, which may be a number; at a number among others, on the straight line between the two
        nearest. NaN outside, and beside a gap."""
        labelled = any(isinstance(each, str) for each in self.values)
        if isinstance(place, str) or labelled or place in self.values:
            return self.values.get(place, self.values.get(str(place), math.nan))
        x, y = zip(*sorted(self._within().items()), strict=True)
        return float(np.interp(place, x, y, math.nan, math.nan))

    def within(self, low: float = -math.inf, high: float = math.inf) -> dict[float, float]:
        """The values whose places are numbers from `low` to `high`; labels count from 0.

        There are none if one of them is not known: it may be the highest or the lowest.
        """
        found = self._within(low, high)
        return found if all(map(math.isfinite, found.values())) else {}

    @property
    def known(self) -> bool:
        """Whether it has a value."""
        return any(map(math.isfinite, self.values.values()))

    def _within(self, low: float = -math.inf, high: float = math.inf) -> dict[float, float]:
        places = (place if not isinstance(place, str) else float(i) for i, place in enumerate(self.values))
        return {x: y for x, y in zip(places, self.values.values(), strict=True) if low <= x <= high}

    def minus(self, other: Series) -> Series:
        """The differences, where both have a value."""
        shared = {place: y - other.values[place] for place, y in self.values.items() if place in other.values}
        return Series(shared, min(self.last, other.last))


def _spread(values: Collection[float]) -> float:
    """The highest minus the lowest of at least two values, or NaN."""
    return max(values) - min(values) if len(values) > 1 else math.nan


def _ratio(a: float, b: float) -> float:
    """a / b; NaN unless b is above 0: a loss is no share of another loss."""
    return a / b if b > 0 else math.nan


Measure = Callable[[Series, Sequence[Any]], float]

NUMBERS: dict[str, tuple[str, tuple[int, ...], Measure]] = {
    "end": ("at the end", (0,), lambda of, at: fmean(list(of.values.values())[-of.last :])),
    "value": ("at {}", (1,), lambda of, at: of.at(at[0])),
    "change": ("change from {} to {}", (2,), lambda of, at: of.at(at[1]) - of.at(at[0])),
    "ratio": ("at {} divided by that at {}", (2,), lambda of, at: _ratio(of.at(at[0]), of.at(at[1]))),
    "peak": ("highest at", (0, 2), lambda of, at: max(found := of.within(*at), key=found.__getitem__)),
    "lowest": ("lowest", (0, 2), lambda of, at: min(of.within(*at).values())),
    "spread": ("highest minus lowest", (0, 2), lambda of, at: _spread(of.within(*at).values())),
}
"""The number of a line that a statement is about: in words, how many places `at` it needs, and how it is found."""

OF_EACH = ("end", "value", "change")
"""Numbers whose difference is that of the two lines' numbers, also where the lines have values at other places."""


@dataclass(frozen=True)
class Verdict:
    """A statement of the paper, the numbers here, and whether they agree; None if a number is not there."""

    says: str
    place: str
    here: str
    holds: bool | None

    @property
    def word(self) -> str:
        """Yes, no or not decided."""
        return "not decided" if self.holds is None else "yes" if self.holds else "no"

    def __str__(self) -> str:
        return f"The paper ({self.place}): {self.says}. Here: {self.word}; {self.here}."


@dataclass(frozen=True)
class Statement:
    """What the paper `says` at a `place` about lines of its figure, as something that numbers can decide.

    `number` names one number of each line (see `NUMBERS`), `at` the places that it needs. With `less`, the number is
    that of the difference between each line and this one: for those of `OF_EACH` the difference of the two numbers,
    for the others the number of the differences at the places that both have. With `between`, every number must lie
    there, ends included. Without it, each number must be above those of all `lines` that are listed later; lines in one
    list are not compared with each other.
    """

    says: str
    place: str
    lines: tuple[tuple[str, ...], ...]
    number: str = "end"
    at: tuple[Place, ...] = ()
    less: str = ""
    between: tuple[float, float] | None = None

    @classmethod
    def of(cls, table: Any, place: str) -> Statement:
        """The statement that a table in a reproduction's file describes. Raises `ConfigError`."""
        given = keyed(table, KEYS, place)
        says, where, number, less = (
            text(given.get(key, usual), f"{place}.{key}")
            for key, usual in (("says", ""), ("place", ""), ("number", "end"), ("less", ""))
        )
        check_known(number, NUMBERS, f"{place}.number: there is no number")
        at, between, lines = (listed(given.get(key, []), f"{place}.{key}") for key in ("at", "between", "lines"))
        if len(at) not in (counts := NUMBERS[number][1]):
            raise ConfigError(f"{place}.at = {shown(at)}: {number} needs {' or '.join(map(str, counts))} places")
        if len(between) not in (0, 2):
            raise ConfigError(f"{place}.between = {shown(between)}: must be the lowest and the highest number")
        levels = tuple(tuple(level) if isinstance(level, list) else (level,) for level in lines)
        if not says or not levels or (not between and len(levels) < 2):
            raise ConfigError(f"{place}: needs what it says, and lines: one with between, otherwise two at least")
        return cls(says, where, levels, number, tuple(at), less, (between[0], between[1]) if between else None)

    def judged(self, series: Mapping[str, Series]) -> Verdict:
        """Whether the lines of a figure agree."""
        named = [line for level in self.lines for line in level] + [self.less] * bool(self.less)
        if gone := [line for line in named if line not in series or not series[line].known]:
            return Verdict(self.says, self.place, f"there is no {', no '.join(gone)}", None)
        levels = [{line: self._number(series, line) for line in level} for level in self.lines]
        numbers = [value for level in levels for value in level.values()]
        holds = self._holds(levels) if all(map(math.isfinite, numbers)) else None
        return Verdict(self.says, self.place, self._words(levels), holds)

    def _number(self, series: Mapping[str, Series], line: str) -> float:
        measure, of = NUMBERS[self.number][2], series[line]
        try:
            if self.less and self.number in OF_EACH:
                return measure(of, self.at) - measure(series[self.less], self.at)
            return measure(of.minus(series[self.less]) if self.less else of, self.at)
        except ValueError:  # of no values there is no mean, no highest and no lowest
            return math.nan

    def _holds(self, levels: Sequence[Mapping[str, float]]) -> bool:
        if self.between is not None:
            low, high = self.between
            return all(low <= value <= high for level in levels for value in level.values())
        return all(min(above.values()) > max(below.values()) for above, below in pairwise(levels))

    def _words(self, levels: Sequence[Mapping[str, float]]) -> str:
        what = NUMBERS[self.number][0].format(*(_shown(place) for place in self.at))
        less = f" less {self.less}" if self.less else ""
        found = (f"{line}{less} {_shown(value)}" for level in levels for line, value in level.items())
        return f"{what}: {', '.join(found)}"


def _shown(value: Place) -> str:
    """A number in a sentence, or a label."""
    if isinstance(value, str):
        return value
    return "unknown" if math.isnan(value) else f"{value:.4g}"
