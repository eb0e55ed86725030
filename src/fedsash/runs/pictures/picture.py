"""The content of a picture as plain numbers. `paper` and `page` draw it.

A picture has panels. For papers they are side by side in rows of `columns`. On the page the reader chooses one of them.
A panel has two axes and layers; later layers are drawn over earlier ones. Numbers are in the units that the axes name
(`100 * share` for per cent). None and NaN are unknown and leave a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .styles import Dash, Style

Numbers = Sequence[float | None]
Grid = Sequence[Numbers]
"""Rows of numbers, `[y][x]`."""


@dataclass(frozen=True)
class Axis:
    """An axis: what it measures, with the unit.

    `low` and `high` are its ends; None takes them from the data. It is reversed if low > high. `ticks` maps places to
    labels. On a `whole` axis only whole numbers are marked.
    """

    label: str = ""
    low: float | None = None
    high: float | None = None
    ticks: Mapping[float, str] | None = None
    log: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Line:
    """A line through points; without a `name` it is not in the legend.

    `errors` are half the lengths of error bars. `smooth` are values that the page can show instead of y. With `steps`
    each y is constant up to the next x ("after") or around its own x ("middle"). `filled` fills the area below. A line
    that is not `shown` is in the page's legend only, where a tick draws it.
    Raises `ValueError` if the lengths differ.
    """

    name: str
    x: Numbers
    y: Numbers
    style: Style
    errors: Numbers | None = None
    smooth: Numbers | None = None
    steps: Literal["", "after", "middle"] = ""
    filled: bool = False
    shown: bool = True

    def __post_init__(self) -> None:
        for values in (self.y, self.errors, self.smooth):
            if values is not None:
                _check_lengths(values, self.x)


@dataclass(frozen=True)
class Points:
    """White marks that can be seen on any colour, each with its name beside it. Raises `ValueError` as `Line` does."""

    names: Sequence[str]
    x: Numbers
    y: Numbers
    symbol: Literal["circle", "cross", "diamond"] = "circle"

    def __post_init__(self) -> None:
        _check_lengths(self.x, self.names)
        _check_lengths(self.y, self.names)


@dataclass(frozen=True)
class Rule:
    """A line across the panel where an axis has the value `at`, with a note at its end.

    The note of a line upright is on its side with more room.
    """

    at: float
    axis: Literal["x", "y"]
    note: str = ""
    dash: Dash = "solid"


@dataclass(frozen=True)
class Bars:
    """Bars at the places x. Each series has a `name`, a colour and a row of heights; `None` is no bar.

    The series are side by side, or `stacked`. `width` is the share of a place that its bars fill.
    Raises `ValueError` if the lengths differ.
    """

    names: Sequence[str]
    x: Sequence[float]
    heights: Grid
    colours: Sequence[str]
    stacked: bool = False
    width: float = 0.8

    def __post_init__(self) -> None:
        _check_lengths(self.heights, self.names)
        _check_lengths(self.colours, self.names)
        for heights in self.heights:
            _check_lengths(heights, self.x)


@dataclass(frozen=True)
class Spans:
    """Intervals of a time line, all of one kind: interval i is in row `rows[i]`, from `begins[i]` to `ends[i]`.

    `height` is the share of a row that they take. Raises `ValueError` if the lengths differ.
    """

    name: str
    rows: Sequence[int]
    begins: Sequence[float]
    ends: Sequence[float]
    colour: str
    height: float = 0.8

    def __post_init__(self) -> None:
        _check_lengths(self.begins, self.rows)
        _check_lengths(self.ends, self.rows)


@dataclass(frozen=True)
class Dots:
    """Numbers of samples as dots: `counts[y][x]` at x = 0, 1, ... and y = 0, 1, ...; there is no dot for 0.

    A dot's area is the count's share of its column. `colours` has a colour for each row. Raises `ValueError` if the
    rows differ in length or number from the colours.
    """

    counts: Sequence[Sequence[int]]
    colours: Sequence[str]

    def __post_init__(self) -> None:
        _check_lengths(self.colours, self.counts)
        for row in self.counts:
            _check_lengths(row, self.counts[0])

    def places(self) -> list[tuple[int, int, int, float]]:
        """Each dot: x, y, its count and its share."""
        sums = [sum(column) for column in zip(*self.counts, strict=True)]
        places = []
        for y, row in enumerate(self.counts):
            for x, count in enumerate(row):
                if count:
                    places.append((x, y, count, count / sums[x]))
        return places


@dataclass(frozen=True)
class Field:
    """Numbers over a plane, as contours seen from above or as a `relief` in three dimensions.

    `levels` are the levels of the contours, ascending; values beyond an end take its colour. They may be left out:
    `scales.common` gives the same levels to all fields with the same `label`, in one or several pictures.
    Raises `ValueError` unless the values have a row for each y and a column for each x.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    values: Grid
    relief: bool = False
    levels: Sequence[float] = ()

    def __post_init__(self) -> None:
        if len(self.values) != len(self.y) or any(len(row) != len(self.x) for row in self.values):
            raise ValueError(f"its {self.label} must have {len(self.y)} rows of {len(self.x)} values")


Layer = Line | Points | Rule | Bars | Spans | Dots | Field


@dataclass(frozen=True)
class Panel:
    """Two axes and the layers on them. `name` identifies the panel among others.

    `width` and `height` are in inches on paper. On the page, a picture is as wide as the window. On a `square` panel
    both axes have the same unit. `ends` writes names at the ends of lines, if there is room on paper.
    """

    name: str
    x: Axis
    y: Axis
    layers: Sequence[Layer]
    width: float = 4.5
    height: float = 4.0
    square: bool = False
    ends: bool = False

    def upright(self) -> list[tuple[Rule, bool]]:
        """The rules upright, each with whether it is in the right half, so that its note must be on its left."""
        values: list[float] = []
        for layer in self.layers:
            values += [value for value in getattr(layer, "x", ()) if value is not None]
        rules = [layer for layer in self.layers if isinstance(layer, Rule) and layer.axis == "x"]
        values += [rule.at for rule in rules]
        low = self.x.low
        if low is None:
            low = min(values, default=0)
        high = self.x.high
        if high is None:
            high = max(values, default=0)
        middle = (low + high) / 2
        if self.x.log:
            middle = math.sqrt(low * high)
        return [(rule, rule.at > middle) for rule in rules]


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture: its title, its panels in the order of the page, and one or two sentences below it on the page.

    Papers have captions of their own: there, the sentences of `below` are printed below the panels instead. A notebook
    shows it drawn, and `save(path)` writes it.
    """

    title: str
    panels: Sequence[Panel]
    columns: int = 1
    caption: str = ""
    below: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"Picture({self.title!r}, {', '.join(panel.name for panel in self.panels)}): save(path) writes it"

    def _repr_png_(self) -> bytes:
        from .paper import drawn

        return drawn(self, "png")

    def save(self, path: Path | str) -> None:
        """Write it into the file `path`: PNG, PDF or SVG, by its extension. Raises `ValueError` for another one."""
        from .paper import draw

        draw(self, path)


def _check_lengths(values: Sequence[object], places: Sequence[object]) -> None:
    """Raise `ValueError` unless there is one value for each place."""
    if len(values) != len(places):
        raise ValueError(f"{len(values)} values stand against {len(places)} places")
