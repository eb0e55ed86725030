"""What pictures are made of: traces and layouts for plotly, as plain data, and the look that they share.

A figure is `{"height": pixels, "series": {id: {x, y, smooth}}, "views": [{label, data, layout}]}`. The reader chooses
one of its views. A trace with a `series` takes its points from there, raw or smoothed; one with a `label` is in the
legend. page.js puts both together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..curves import COLOURS

BLUE = COLOURS[0]
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down")
GREY = "#767676"
HEIGHT = 420
MAPS = "Cividis"


@dataclass(frozen=True)
class Figure:
    """A picture: what it is called, its text alternative, what it is made of; two `half` ones fit side by side."""

    title: str
    caption: str
    views: list[dict[str, Any]]
    series: dict[str, dict[str, Any]] | None = None
    height: int = HEIGHT
    half: bool = False
    command: str = ""

    def spec(self) -> dict[str, Any]:
        """What page.js reads."""
        return {"height": self.height, "series": self.series or {}, "views": self.views}


def plain(text: object) -> str:
    """Text as plotly shows it: it knows some of HTML's elements, and entities."""
    return escape(str(text), quote=False)


def view(label: str, data: Sequence[dict[str, Any]], **layout: Any) -> dict[str, Any]:
    """A view; of the layout only what differs from that of page.js."""
    return {"label": label, "data": list(data), "layout": layout}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": plain(title)}} | more


def line(label: str, place: int, **more: Any) -> dict[str, Any]:
    """A line of the legend: its place gives it a colour, a dash and a marker, and no two places share all three."""
    colour, lap = COLOURS[place % len(COLOURS)], place // len(COLOURS)
    dash = DASHES[(place + lap) % len(DASHES)]
    return styled(label, colour, dash, SYMBOLS[place % len(SYMBOLS)]) | more


def styled(label: str, colour: str, dash: str, symbol: str, width: float = 2) -> dict[str, Any]:
    """A line in this style."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "label": label,
        "name": plain(label),
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"color": colour, "symbol": symbol, "size": 7, "maxdisplayed": 12},
    }


def model_line(model: str, averages: Sequence[str]) -> dict[str, Any]:
    """A model's line among those of one run: the model itself stays in the background."""
    raw = styled(model, GREY, "solid", "circle", 1.2)
    return raw if model == "model" else line(model, averages.index(model))


def points(x: Iterable[float | None], y: Iterable[float | None]) -> dict[str, Any]:
    """The places and values of a trace. Raises `ValueError` if they are not of one length."""
    xs, ys = numbers(x), numbers(y)
    if len(xs) != len(ys):
        raise ValueError(f"{len(ys)} values stand against {len(xs)} places")
    return {"x": xs, "y": ys}


def numbers(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    """Numbers with so many significant digits, None where they are not finite: what JSON can say."""
    found = (None if value is None or not math.isfinite(value) else value for value in values)
    return [value if value is None else float(f"{value:.{digits}g}") for value in found]
