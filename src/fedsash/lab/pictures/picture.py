"""What a picture shows, as plain numbers: `paper` and `page` draw it.

A picture has panels. For papers they stand side by side in rows of `columns`; on the page the reader chooses one of
them. A panel has two axes and layers, of which the later ones are drawn over the earlier ones. Numbers are in the units
that the axes name (`100 * share` for per cent); None and NaN are unknown and leave a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .styles import Dash, Style

Numbers = Sequence[float | None]
Grid = Sequence[Numbers]
"""Rows of numbers, `[y][x]`."""


@dataclass(frozen=True)
class Axis:
    """An axis: what it measures, with the unit.

    `low` and `high` are where it begins and ends, None where the data say; it runs downwards if low > high. `ticks` are
    places and what is written there. On a `whole` axis only whole numbers are marked.
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
    each y is kept up to the next x ("after") or stands around its own x ("middle"). `filled` paints the area below.
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

    def __post_init__(self) -> None:
        for values in (self.y, self.errors, self.smooth):
            if values is not None:
                _fits(values, self.x)


@dataclass(frozen=True)
class Points:
    """White marks that can be seen on any colour, each with its name beside it. Raises `ValueError` as `Line` does."""

    names: Sequence[str]
    x: Numbers
    y: Numbers
    symbol: Literal["circle", "cross"] = "circle"

    def __post_init__(self) -> None:
        _fits(self.x, self.names)
        _fits(self.y, self.names)


@dataclass(frozen=True)
class Rule:
    """A line across the panel where an axis has the value `at`, with a note at its end."""

    at: float
    axis: Literal["x", "y"]
    note: str = ""
    dash: Dash = "solid"


@dataclass(frozen=True)
class Bars:
    """Bars at the places x: a `name`, a colour and a row of heights each; `None` is no bar.

    They stand side by side, or are `stacked`. `width` is the share of a place that its bars take.
    Raises `ValueError` if the lengths differ.
    """

    names: Sequence[str]
    x: Sequence[float]
    heights: Grid
    colours: Sequence[str]
    stacked: bool = False
    width: float = 0.8

    def __post_init__(self) -> None:
        _fits(self.heights, self.names)
        _fits(self.colours, self.names)
        for heights in self.heights:
            _fits(heights, self.x)


@dataclass(frozen=True)
class Spans:
    """Stretches of a time line: row `rows[i]` from `begins[i]` to `ends[i]`, all of one kind.

    `height` is the share of a row that they take. Raises `ValueError` if the lengths differ.
    """

    name: str
    rows: Sequence[int]
    begins: Sequence[float]
    ends: Sequence[float]
    colour: str
    height: float = 0.8

    def __post_init__(self) -> None:
        _fits(self.begins, self.rows)
        _fits(self.ends, self.rows)


@dataclass(frozen=True)
class Dots:
    """How many there are of something, `counts[y][x]` at x = 0, 1, ... and y = 0, 1, ...: a dot each, none for 0.

    A dot's area is the count's share of its column. `colours` has one for each row; `label` is what is counted.
    Raises `ValueError` if rows differ in length, or if there is not a colour for each.
    """

    counts: Sequence[Sequence[int]]
    colours: Sequence[str]
    label: str = "samples"

    def __post_init__(self) -> None:
        _fits(self.colours, self.counts)
        for row in self.counts:
            _fits(row, self.counts[0])

    def places(self) -> list[tuple[int, int, int, float]]:
        """Each dot: x, y, its count and its share."""
        sums = [sum(column) for column in zip(*self.counts, strict=True)]
        found = ((x, y, count) for y, row in enumerate(self.counts) for x, count in enumerate(row))
        return [(x, y, count, count / sums[x]) for x, y, count in found if count]


@dataclass(frozen=True)
class Field:
    """Numbers over a plane, as contours seen from above or as a `relief` in three dimensions.

    `levels` are those of the contours, ascending; what is beyond the last is cut off. Fields of one `label` have one
    scale in a picture, and in several that `scales.common` has brought together; without it, none need be given.
    Raises `ValueError` if the values are not a row for each y and a column for each x.
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
    """Two axes and what is drawn on them; `name` is what it is called beside others.

    `width` and `height` are in inches on paper; the page is as wide as the window, and 100 pixels high for an inch. On
    a `square` panel both axes have the same unit. `ends` writes names beside the ends of lines, where paper has room.
    """

    name: str
    x: Axis
    y: Axis
    layers: Sequence[Layer]
    width: float = 4.5
    height: float = 4.0
    square: bool = False
    ends: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture: its title, its panels in the order of the page, and a sentence or two below it on the page."""

    title: str
    panels: Sequence[Panel]
    columns: int = 1
    caption: str = ""


def _fits(values: Sequence[object], places: Sequence[object]) -> None:
    if len(values) != len(places):
        raise ValueError(f"{len(values)} values stand against {len(places)} places")
