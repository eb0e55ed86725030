"""Pictures for the page: traces and layouts for plotly, as plain data.

A picture is `{"height": pixels, "series": {id: {x, y, smooth}}, "views": [{label, data, layout}]}`, with a view for
each panel. A trace with a `series` takes its points from there, raw or smoothed; one with a `label` is in the legend,
where one that is `unticked` is hidden at first. page.js puts both together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Literal

from .picture import Axis, Bars, Dots, Field, Line, Panel, Picture, Points, Rule, Spans
from .scales import common
from .styles import GREY, RAMP

Trace = dict[str, Any]
Json = dict[str, Any]
Series = dict[tuple[tuple[float | None, ...], ...], str]
"""The id of each series of points that can be smoothed, by its x, y and smooth. Views share equal ones."""

INCH = 100
"""Pixels per inch of a panel's height on paper."""
LOWEST = 300
HIGHEST = 680
"""The smallest and largest height of a picture in pixels."""
NOTE = 16
"""The height of a rule's note in pixels."""
TAG = 18
"""How many pixels above its mark the name of a point is."""
NEAR = 0.15
"""The share of a field's width and height within which two names would overlap."""
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
    series: Series = {}
    views = [_view(panel, series) for panel in picture.panels]
    table = {}
    for (x, y, smooth), identifier in series.items():
        table[identifier] = {"x": list(x), "y": list(y), "smooth": list(smooth)}
    return {"height": round(min(max(height, LOWEST), HIGHEST)), "series": table, "views": views}


def numbers(values: Iterable[float | None]) -> list[float | None]:
    """Numbers with `DIGITS` digits, as JSON can hold them: None if a number is not finite."""
    rounded: list[float | None] = []
    for value in values:
        if value is None or not math.isfinite(value):
            rounded.append(None)
        else:
            rounded.append(float(f"{value:.{DIGITS}g}"))
    return rounded


def _view(panel: Panel, series: Series) -> Json:
    data: list[Trace] = []
    shapes = []
    annotations = []
    for layer in panel.layers:
        data += _traces(layer, panel, series)
        if isinstance(layer, Rule):
            shapes.append(_shape(layer))
            if layer.note:
                annotations.append(_note(layer, panel))
    layout = {"shapes": shapes, "annotations": annotations + _name_tags(panel)}
    return {"label": panel.name, "data": data, "layout": layout | _axes(panel) | _bar_mode(panel)}


def _traces(layer: object, panel: Panel, series: Series) -> Iterator[Trace]:
    match layer:
        case Line():
            yield _line(layer, series)
        case Points():
            yield _points(layer)
        case Bars():
            yield from _bars(layer)
        case Spans():
            yield _spans(layer, panel)
        case Dots() if len(layer.counts) * len(layer.counts[0]) > MAP:
            yield _heat_map(layer, panel)
        case Dots():
            yield _dots(layer, panel)
        case Field() if layer.relief:
            yield _relief(layer)
        case Field():
            yield _contours(layer)


# Axes


def _axes(panel: Panel) -> Json:
    for layer in panel.layers:
        if isinstance(layer, Field) and layer.relief:
            z = Axis("", layer.levels[0], layer.levels[-1])
            return {"scene": {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y), "zaxis": _axis(z)}}
    x = _axis(_marked(panel, "x"))
    y = _axis(_marked(panel, "y"))
    x["unifiedhovertitle"] = {"text": f"{_plain(panel.x.label)} %{{x}}"}
    y["hoverformat"] = ".5~g"
    if panel.square:
        x = x | {"constrain": "domain"}
        y = y | {"constrain": "domain", "scaleanchor": "x"}
    return {"xaxis": x, "yaxis": y}


def _axis(axis: Axis) -> Json:
    layout: Json = {"title": {"text": _plain(axis.label)}}
    if axis.log:
        layout["type"] = "log"
    if axis.low is not None or axis.high is not None:
        layout["range"] = [_axis_end(axis.low, axis), _axis_end(axis.high, axis)]
    if axis.ticks is not None:
        layout["tickvals"] = list(axis.ticks)
        layout["ticktext"] = [_plain(text) for text in axis.ticks.values()]
    return layout


def _axis_end(end: float | None, axis: Axis) -> float | None:
    """An end of the axis as plotly needs it: the logarithm on logarithmic axes. None lets plotly choose."""
    if axis.log and end:
        return math.log10(end)
    return end


def _marked(panel: Panel, which: Literal["x", "y"]) -> Axis:
    """The panel's axis. If there are only a few whole numbers, each is marked."""
    axis: Axis = getattr(panel, which)
    if not axis.whole or axis.ticks is not None:
        return axis
    values: list[float] = []
    for layer in panel.layers:
        values += [value for value in getattr(layer, which, ()) if value is not None]
    low = axis.low
    if low is None:
        low = min(values, default=0)
    high = axis.high
    if high is None:
        high = max(values, default=0)
    # A reversed axis has low > high.
    marks = range(math.ceil(min(low, high)), math.floor(max(low, high)) + 1)
    if len(marks) > FEW:
        return axis
    return replace(axis, ticks={mark: str(mark) for mark in marks})


def _bar_mode(panel: Panel) -> Json:
    for layer in panel.layers:
        if isinstance(layer, Bars):
            return {"barmode": "stack" if layer.stacked else "group", "bargap": 1 - layer.width}
        if isinstance(layer, Spans):
            return {"barmode": "overlay", "hovermode": "closest"}
    return {}


# Layers


def _line(line: Line, series: Series) -> Trace:
    style = line.style
    stroke: Json = {"color": style.colour, "dash": style.dash, "width": 1.2 if style.quiet else 2}
    marker = {"color": style.colour, "symbol": style.symbol, "size": 7, "maxdisplayed": 12}
    trace: Trace = {"type": "scatter", "mode": "lines+markers", "line": stroke, "marker": marker}
    trace |= _named(line.name)
    if not line.shown:
        trace["unticked"] = True
    if line.steps:
        trace["mode"] = "lines"
        stroke["shape"] = "hv" if line.steps == "after" else "hvh"
    if line.filled:
        trace |= {"fill": "tozeroy", "fillcolor": f"{style.colour}40"}
    if line.errors is not None:
        trace["error_y"] = {"type": "data", "array": numbers(line.errors), "thickness": 1.2}
    if line.smooth is None:
        return trace | {"x": numbers(line.x), "y": numbers(line.y)}
    points = (tuple(numbers(line.x)), tuple(numbers(line.y)), tuple(numbers(line.smooth)))
    identifier = series.setdefault(points, str(len(series)))
    return trace | {"series": identifier}


def _points(points: Points) -> Trace:
    marker: Json = {"symbol": "circle", "size": 11, "color": "white", "line": {"color": "black", "width": 1.5}}
    if points.symbol == "cross":
        marker = {"symbol": "x-thin", "size": 13, "line": {"color": "white", "width": 3}}
    if points.symbol == "diamond":
        marker["symbol"] = "diamond"
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
    tooltip = f"{_plain(panel.y.label)} %{{y}}: {_plain(spans.name)} from %{{base}} to %{{x}}<extra></extra>"
    return _named(spans.name) | {
        "type": "bar",
        "orientation": "h",
        "y": list(spans.rows),
        "base": numbers(spans.begins),
        "x": numbers(lengths),
        "width": spans.height,
        "marker": {"color": spans.colour, "line": {"width": 0}},
        "hovertemplate": tooltip,
    }


def _dots(dots: Dots, panel: Panel) -> Trace:
    places = dots.places()
    shares = [share for _, _, _, share in places]
    diameter = min(max(850 / len(dots.counts[0]), 6), 16)
    marker = {
        "sizemode": "area",
        "sizeref": max(shares, default=1) / diameter**2,
        "sizemin": 1.5,
        "size": numbers(shares),
        "color": [dots.colours[y] for _, y, _, _ in places],
        "opacity": 0.85,
        "line": {"width": 0},
    }
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _, _, _ in places],
        "y": [y for _, y, _, _ in places],
        "customdata": [count for _, _, count, _ in places],
        "marker": marker,
        "hovertemplate": _sample_tooltip(panel, "%{customdata}"),
    }


def _heat_map(dots: Dots, panel: Panel) -> Trace:
    return {
        "type": "heatmap",
        "z": [list(row) for row in dots.counts],
        "colorscale": _colours([0, 1]),
        "colorbar": _bar("samples"),
        "hovertemplate": _sample_tooltip(panel, "%{z}"),
    }


def _sample_tooltip(panel: Panel, count: str) -> str:
    """The text at a dot; `count` is plotly's name for its number of samples."""
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


def _colours(levels: Sequence[float]) -> list[list[Any]]:
    """The ramp's colours, as far apart as the levels: a list of [share of the levels' range, colour]."""
    low = levels[0]
    span = levels[-1] - levels[0]
    last = len(RAMP) - 1
    scale: list[list[Any]] = []
    for i, colour in enumerate(RAMP):
        place = i / last * (len(levels) - 1)
        before = min(int(place), len(levels) - 2)
        level = levels[before] + (place - before) * (levels[before + 1] - levels[before])
        scale.append([round((level - low) / span, 4), colour])
    return scale


def _bar(title: str) -> Json:
    return {"title": {"text": _plain(title), "side": "right"}, "thickness": 12, "outlinewidth": 0, "tickformat": ".3~g"}


# Rules


def _shape(rule: Rule) -> Json:
    stroke = {"type": "line", "line": {"color": GREY, "width": 1, "dash": rule.dash}}
    if rule.axis == "y":
        return {"y0": rule.at, "y1": rule.at, "x0": 0, "x1": 1, "xref": "paper"} | stroke
    return {"x0": rule.at, "x1": rule.at, "y0": 0, "y1": 1, "yref": "paper"} | stroke


def _note(rule: Rule, panel: Panel) -> Json:
    """The note of a rule. Notes of successive rules upright stand above each other, since they may be long."""
    look: Json = {"showarrow": False, "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}}
    look["text"] = _plain(rule.note)
    if rule.axis == "y":
        return look | {"y": _at(rule.at, panel.y), "x": 0, "xref": "paper"}
    upright = panel.upright()
    place = [one for one, _ in upright].index(rule)
    right_half = upright[place][1]
    look |= {"x": _at(rule.at, panel.x), "y": 0, "yref": "paper", "yshift": NOTE * place, "xshift": 3}
    if right_half:
        look |= {"xanchor": "right", "xshift": -3}
    return look


def _name_tags(panel: Panel) -> list[Json]:
    """The names of points, dark on light, so that they can be read on any colour.

    A name stands above its mark; where others are near, by turns below and above, each further away.
    """
    look: Json = {"showarrow": False, "bgcolor": "rgba(255,255,255,0.85)", "borderpad": 2}
    look |= {"font": {"color": "#1f2328", "size": 12}}
    fields = [layer for layer in panel.layers if isinstance(layer, Field)]
    near = (0.0, 0.0)
    if fields:
        near = (NEAR * (max(fields[0].x) - min(fields[0].x)), NEAR * (max(fields[0].y) - min(fields[0].y)))
    tags: list[Json] = []
    named: list[tuple[float, float]] = []
    for layer in panel.layers:
        if not isinstance(layer, Points):
            continue
        for name, x, y in zip(layer.names, numbers(layer.x), numbers(layer.y), strict=True):
            if not name or x is None or y is None:
                continue
            neighbours = sum(abs(x - at[0]) < near[0] and abs(y - at[1]) < near[1] for at in named)
            named.append((x, y))
            shift = TAG * (1 + neighbours // 2)
            if neighbours % 2 == 1:
                shift = -shift
            tags.append(look | {"yshift": shift, "x": _at(x, panel.x), "y": _at(y, panel.y), "text": _plain(name)})
    return tags


def _at(value: float, axis: Axis) -> float:
    """Where a note stands: plotly needs the logarithm on logarithmic axes for notes, but not for lines."""
    return math.log10(value) if axis.log else value


def _named(name: str) -> Trace:
    """The name of a trace, in the legend if it has one."""
    if not name:
        return {"name": ""}
    return {"label": name, "name": _plain(name)}


def _plain(text: object) -> str:
    """Text escaped for plotly, which interprets some HTML elements and entities."""
    return escape(str(text), quote=False)
