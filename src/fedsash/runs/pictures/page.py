"""Pictures for the page: traces and layouts for plotly, as plain data.

A picture is `{"height": pixels, "series": {id: {x, y, smooth}}, "views": [{label, data, layout}]}`, with a view for
each panel. A trace with a `series` takes its points from there, raw or smoothed; one with a `label` is in the legend.
page.js puts both together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html import escape
from typing import Any, Literal

from .picture import Axis, Bars, Dots, Field, Line, Panel, Picture, Points, Rule, Spans
from .scales import common
from .styles import GREY, RAMP

Trace = dict[str, Any]
Json = dict[str, Any]

INCH = 100
LOWEST = 300
HIGHEST = 680
"""Pixels per inch of a panel's height on paper, and the smallest and largest height of a picture in pixels."""
MAP = 3000
"""More dots than this are drawn as a heat map."""
STEPS = 24
"""Steps between the contours of a field."""
FEW = 12
"""An axis with at most this many whole numbers marks each of them."""
DIGITS = 6
"""Significant digits of numbers on the page."""


def plotly(picture: Picture) -> Json:
    """The picture as page.js reads it. Raises `ValueError` for a picture without panels."""
    if not picture.panels:
        raise ValueError("it holds no numbers")
    (picture,) = common([picture])
    height = INCH * max(panel.height for panel in picture.panels)
    series: dict[tuple[Any, ...], str] = {}
    views = [_view(panel, series) for panel in picture.panels]
    table = {id: dict(zip(("x", "y", "smooth"), map(list, points), strict=True)) for points, id in series.items()}
    return {"height": round(min(max(height, LOWEST), HIGHEST)), "series": table, "views": views}


def numbers(values: Iterable[float | None]) -> list[float | None]:
    """Numbers with `DIGITS` digits, as JSON can hold them: None if a number is not finite."""
    found = (None if value is None or not math.isfinite(value) else value for value in values)
    return [value if value is None else float(f"{value:.{DIGITS}g}") for value in found]


def _view(panel: Panel, series: dict[tuple[Any, ...], str]) -> Json:
    data = [trace for layer in panel.layers for trace in _traces(layer, panel, series)]
    rules = [layer for layer in panel.layers if isinstance(layer, Rule)]
    layout = {
        "shapes": [_shape(rule) for rule in rules],
        "annotations": [_note(rule, panel) for rule in rules if rule.note] + _name_tags(panel),
    }
    return {"label": panel.name, "data": data, "layout": layout | _axes(panel) | _bar_mode(panel)}


def _traces(layer: object, panel: Panel, series: dict[tuple[Any, ...], str]) -> Iterator[Trace]:
    match layer:
        case Line():
            yield _line(layer, series)
        case Points():
            yield _points(layer)
        case Bars():
            yield from _bars(layer)
        case Spans():
            yield _spans(layer, panel)
        case Dots():
            yield (_dots if len(layer.counts) * len(layer.counts[0]) <= MAP else _map)(layer, panel)
        case Field():
            yield _relief(layer) if layer.relief else _contours(layer)


# Axes


def _axes(panel: Panel) -> Json:
    deep = next((layer for layer in panel.layers if isinstance(layer, Field) and layer.relief), None)
    if deep is not None:
        z = Axis("", deep.levels[0], deep.levels[-1])
        return {"scene": {f"{name}axis": _axis(axis) for name, axis in (("x", panel.x), ("y", panel.y), ("z", z))}}
    x = _axis(_marked(panel, "x"))
    y = _axis(_marked(panel, "y"))
    x["unifiedhovertitle"] = {"text": f"{_plain(panel.x.label)} %{{x}}"}
    y["hoverformat"] = ".5~g"
    if panel.square:
        x = x | {"constrain": "domain"}
        y = y | {"constrain": "domain", "scaleanchor": "x"}
    return {"xaxis": x, "yaxis": y}


def _axis(axis: Axis) -> Json:
    found: Json = {"title": {"text": _plain(axis.label)}}
    if axis.log:
        found["type"] = "log"
    if axis.low is not None or axis.high is not None:
        found["range"] = [math.log10(end) if axis.log and end else end for end in (axis.low, axis.high)]
    if axis.ticks is not None:
        found |= {"tickvals": list(axis.ticks), "ticktext": [_plain(text) for text in axis.ticks.values()]}
    return found


def _marked(panel: Panel, which: Literal["x", "y"]) -> Axis:
    """The panel's axis. If there are only a few whole numbers, each is marked."""
    axis: Axis = getattr(panel, which)
    if not axis.whole or axis.ticks is not None:
        return axis
    shown = [value for layer in panel.layers for value in getattr(layer, which, ()) if value is not None] or [0]
    ends = [min(shown) if axis.low is None else axis.low, max(shown) if axis.high is None else axis.high]
    marks = range(math.ceil(min(ends)), math.floor(max(ends)) + 1)
    return replace(axis, ticks={n: str(n) for n in marks}) if len(marks) <= FEW else axis


def _bar_mode(panel: Panel) -> Json:
    for layer in panel.layers:
        if isinstance(layer, Bars):
            return {"barmode": "stack" if layer.stacked else "group", "bargap": 1 - layer.width}
        if isinstance(layer, Spans):
            return {"barmode": "overlay", "hovermode": "closest"}
    return {}


# Layers


def _line(line: Line, series: dict[tuple[Any, ...], str]) -> Trace:
    style = line.style
    stroke: Json = {"color": style.colour, "dash": style.dash, "width": 1.2 if style.quiet else 2}
    marker = {"color": style.colour, "symbol": style.symbol, "size": 7, "maxdisplayed": 12}
    trace: Trace = {"type": "scatter", "mode": "lines+markers", "line": stroke, "marker": marker}
    trace |= _named(line.name)
    if line.steps:
        trace["mode"], stroke["shape"] = "lines", "hv" if line.steps == "after" else "hvh"
    if line.filled:
        trace |= {"fill": "tozeroy", "fillcolor": f"{style.colour}40"}
    if line.errors is not None:
        trace["error_y"] = {"type": "data", "array": numbers(line.errors), "thickness": 1.2}
    if line.smooth is None:
        return trace | {"x": numbers(line.x), "y": numbers(line.y)}
    points = tuple(tuple(numbers(values)) for values in (line.x, line.y, line.smooth))
    return trace | {"series": series.setdefault(points, str(len(series)))}


def _points(points: Points) -> Trace:
    marker: Json = {"symbol": "circle", "size": 11, "color": "white", "line": {"color": "black", "width": 1.5}}
    if points.symbol == "cross":
        marker = {"symbol": "x-thin", "size": 13, "line": {"color": "white", "width": 3}}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(points.x),
        "y": numbers(points.y),
        "text": [_plain(name) for name in points.names],
        "marker": marker,
        "hoverinfo": "text",
    }


def _bars(bars: Bars) -> Iterator[Trace]:
    for name, heights, colour in zip(bars.names, bars.heights, bars.colours, strict=True):
        marker = {"color": colour, "line": {"width": 0}}
        yield {"type": "bar", "x": numbers(bars.x), "y": numbers(heights), "marker": marker} | _named(name)


def _spans(spans: Spans, panel: Panel) -> Trace:
    lengths = (end - begin for begin, end in zip(spans.begins, spans.ends, strict=True))
    told = f"{_plain(panel.y.label)} %{{y}}: {_plain(spans.name)} from %{{base}} to %{{x}}<extra></extra>"
    return _named(spans.name) | {
        "type": "bar",
        "orientation": "h",
        "y": list(spans.rows),
        "base": numbers(spans.begins),
        "x": numbers(lengths),
        "width": spans.height,
        "marker": {"color": spans.colour, "line": {"width": 0}},
        "hovertemplate": told,
    }


def _dots(dots: Dots, panel: Panel) -> Trace:
    x, y, counts, shares = (list(column) for column in zip(*dots.places(), strict=True)) if dots.places() else [[]] * 4
    diameter = min(max(850 / len(dots.counts[0]), 6), 16)
    size = {"sizemode": "area", "sizeref": max(shares, default=1) / diameter**2, "sizemin": 1.5}
    colours = [dots.colours[row] for row in y]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "customdata": counts,
        "marker": size | {"size": numbers(shares), "color": colours, "opacity": 0.85, "line": {"width": 0}},
        "hovertemplate": _told(panel, "%{customdata}"),
    }


def _map(dots: Dots, panel: Panel) -> Trace:
    z = [list(row) for row in dots.counts]
    told = _told(panel, "%{z}")
    return {
        "type": "heatmap",
        "z": z,
        "colorscale": _colours([0, 1]),
        "colorbar": _bar("samples"),
        "hovertemplate": told,
    }


def _told(panel: Panel, count: str) -> str:
    x = _plain(panel.x.label)
    y = _plain(panel.y.label)
    return f"{x} %{{x}}: {count} samples of {y} %{{y}}<extra></extra>"


def _contours(field: Field) -> Trace:
    """Filled contours at equal steps; the colours are those of the field's levels."""
    low = field.levels[0]
    high = field.levels[-1]
    levels = {"start": low, "end": high, "size": (high - low) / STEPS}
    colours = {"colorscale": _colours(field.levels), "zmin": low, "zmax": high, "zauto": False}
    return _places(field) | {"type": "contour", "contours": levels, "line": {"width": 0.5}} | colours


def _relief(field: Field) -> Trace:
    low = field.levels[0]
    high = field.levels[-1]
    lines = {"z": {"show": True, "usecolormap": True, "project": {"z": True}}}
    colours = {"colorscale": _colours(field.levels), "cmin": low, "cmax": high}
    return _places(field) | {"type": "surface", "contours": lines} | colours


def _places(field: Field) -> Trace:
    z = [numbers(row) for row in field.values]
    return {"x": numbers(field.x), "y": numbers(field.y), "z": z, "colorbar": _bar(field.label)}


def _colours(levels: Iterable[float]) -> list[list[Any]]:
    """The ramp's colours, as far apart as the levels."""
    known = list(levels)
    low = known[0]
    span = known[-1] - known[0]
    last = len(RAMP) - 1
    found = []
    for i, colour in enumerate(RAMP):
        place = i / last * (len(known) - 1)
        before = min(int(place), len(known) - 2)
        level = known[before] + (place - before) * (known[before + 1] - known[before])
        found.append([round((level - low) / span, 4), colour])
    return found


def _bar(title: str) -> Json:
    return {"title": {"text": _plain(title), "side": "right"}, "thickness": 12, "outlinewidth": 0, "tickformat": ".3~g"}


# Rules


def _shape(rule: Rule) -> Json:
    own, other = ("y", "x") if rule.axis == "y" else ("x", "y")
    level = {f"{own}0": rule.at, f"{own}1": rule.at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return level | {"type": "line", "line": {"color": GREY, "width": 1, "dash": rule.dash}}


def _note(rule: Rule, panel: Panel) -> Json:
    axis = panel.x if rule.axis == "x" else panel.y
    at = _at(rule.at, axis)
    place = {"y": at, "x": 0, "xref": "paper"} if rule.axis == "y" else {"x": at, "y": 0, "yref": "paper"}
    look = {"showarrow": False, "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}}
    return look | place | {"text": _plain(rule.note)}


def _name_tags(panel: Panel) -> list[Json]:
    """The names of points, dark on light, so that they can be read on any colour."""
    look: Json = {"showarrow": False, "yshift": 18, "bgcolor": "rgba(255,255,255,0.85)", "borderpad": 2}
    look |= {"font": {"color": "#1f2328", "size": 12}}
    points = [layer for layer in panel.layers if isinstance(layer, Points)]
    places = [place for of in points for place in zip(of.names, numbers(of.x), numbers(of.y), strict=True)]
    return [
        look | {"x": _at(x, panel.x), "y": _at(y, panel.y), "text": _plain(name)}
        for name, x, y in places
        if name and x is not None and y is not None
    ]


def _at(value: float, axis: Axis) -> float:
    """Where a note stands: plotly needs the logarithm on logarithmic axes for notes, but not for lines."""
    return math.log10(value) if axis.log else value


def _named(name: str) -> Trace:
    """The name of a trace, in the legend if it has one."""
    return {"label": name, "name": _plain(name)} if name else {"name": ""}


def _plain(text: object) -> str:
    """Text escaped for plotly, which interprets some HTML elements and entities."""
    return escape(str(text), quote=False)
