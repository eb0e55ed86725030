"""Drawing each kind of layer on matplotlib axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .picture import Bars, Dots, Field, Grid, Layer, Line, Numbers, Panel, Points, Rule, Spans
from .styles import INK, RAMP, Dash

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

FEW = 25
"""A line with at most this many known points has markers."""
MARK = 4.0
LETTER = 5.8
HEIGHT = 11.0
"""Half the size of a mark of `Points`, and the width of a letter and the height of a line of their names, in points."""
DASHES: dict[Dash, Any] = {
    "solid": "-",
    "dash": (0, (5, 1.5)),
    "dot": (0, (1.5, 1)),
    "dashdot": (0, (6, 1.5, 1.5, 1.5)),
    "longdash": (0, (10, 2)),
}
MARKS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "cross": "P",
    "x": "X",
    "triangle-down": "v",
}
STEPS = {"": "default", "after": "steps-post", "middle": "steps-mid"}
FILLS = {"after": "post", "middle": "mid"}


def draw_layer(axes: Axes, layer: Layer, panel: Panel) -> None:
    """Draw a layer on top of the earlier layers."""
    match layer:
        case Line():
            if layer.shown:
                _line(axes, layer)
        case Points():
            _points(axes, layer)
        case Rule():
            _rule(axes, layer, panel)
        case Bars():
            _bars(axes, layer)
        case Spans():
            rows = np.array(layer.rows, float)
            low = rows - layer.height / 2
            high = rows + layer.height / 2
            _boxes(axes, (layer.begins, layer.ends), (low, high), layer.name, layer.colour)
        case Dots():
            _dots(axes, layer, (panel.width, panel.height))
        case Field() if layer.relief:
            _relief(axes, layer)
        case Field():
            _contours(axes, layer)


def numbers(values: Numbers | Grid) -> NDArray[np.float64]:
    """Nested numbers as an array. None becomes NaN."""
    return np.array(values, dtype=np.float64)


def _line(axes: Axes, line: Line) -> None:
    style = line.style
    x = numbers(line.x)
    y = numbers(line.y)
    look = {"color": style.colour, "linewidth": 0.8 if style.quiet else 1.8, "linestyle": DASHES[style.dash]}
    marker = MARKS[style.symbol] if np.isfinite(y).sum() <= FEW and not line.steps else None
    errors = None if line.errors is None else numbers(line.errors)
    if errors is not None:
        axes.errorbar(x, y, errors, fmt="none", ecolor=style.colour, capsize=3, linewidth=1.2)
    if line.filled:
        step: Any = FILLS.get(line.steps)
        axes.fill_between(x, y, step=step, color=style.colour, alpha=0.25, linewidth=0)
    axes.plot(x, y, marker=marker, markersize=3.5, drawstyle=STEPS[line.steps], label=line.name or None, **look)


def _points(axes: Axes, points: Points) -> None:
    """White marks with a dark edge; for their names see `name_points`."""
    mark: dict[str, Any] = {"marker": "o", "markeredgecolor": INK, "markersize": 7}
    if points.symbol == "cross":
        mark = {"marker": "x", "markersize": 9, "markeredgewidth": 2.5}
    if points.symbol == "diamond":
        mark["marker"] = "D"
    axes.plot(numbers(points.x), numbers(points.y), linestyle="none", color="white", **mark)


def name_points(axes: Axes, layers: Sequence[Points], on_colour: bool = False) -> None:
    """Write the names of points beside their marks, on axes that have their limits.

    A name stands above its mark, or else below, right or left of it, where it covers no other name and no other mark.
    If it would cover one everywhere it is left out, but `on_colour`, where names are models, it stands above.
    """
    from matplotlib.patheffects import withStroke

    look: dict[str, Any] = {"color": INK}
    if on_colour:
        edge = [withStroke(linewidth=2.5, foreground=INK)]
        look = {"color": "white", "weight": "bold", "path_effects": edge}
    names = [name for points in layers for name in points.names]
    places = [place for points in layers for place in zip(points.x, points.y, strict=True)]
    marks = axes.transData.transform(numbers(places)) * 72 / axes.figure.dpi
    taken = [Box(across - MARK, down - MARK, across + MARK, down + MARK) for across, down in marks]
    for i, name in enumerate(names):
        if not name:
            continue
        width = LETTER * len(name)
        beside = HEIGHT / 2 + width / 2
        offsets = [(0.0, HEIGHT), (0.0, -HEIGHT), (beside, 0.0), (-beside, 0.0)]
        if on_colour:
            offsets += [(0.0, rows * HEIGHT) for rows in (2, -2, 3, -3)]
        others = [box for place, box in enumerate(taken) if place != i]
        chosen = None
        for right, up in offsets:
            across = marks[i][0] + right
            down = marks[i][1] + up
            box = Box(across - width / 2, down - HEIGHT / 2, across + width / 2, down + HEIGHT / 2)
            if not any(box.covers(other) for other in others):
                taken.append(box)
                chosen = (right, up)
                break
        if chosen is None and on_colour:
            chosen = offsets[0]
        if chosen is not None:
            centred: Any = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": 9}
            axes.annotate(name, places[i], chosen, **centred, **look)


@dataclass(frozen=True)
class Box:
    """A rectangle on paper, in points."""

    left: float
    low: float
    right: float
    high: float

    def covers(self, other: Box) -> bool:
        """Whether the two have a place in common."""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.high <= other.low or other.high <= self.low)


def show_whole_marks(axes: Axes) -> None:
    """Draw the marks at the ends of axes whole, on axes that have their limits.

    Lines that leave the panel stay cut off at its edge.
    """
    left, right = sorted(axes.get_xlim())
    low, high = sorted(axes.get_ylim())
    for line in axes.lines:
        x = np.asarray(line.get_xdata(), float)
        y = np.asarray(line.get_ydata(), float)
        known = np.isfinite(x) & np.isfinite(y)
        inside = (left <= x) & (x <= right) & (low <= y) & (y <= high)
        if line.get_marker() != "None" and bool(inside[known].all()):
            line.set_clip_on(False)


def _rule(axes: Axes, rule: Rule, panel: Panel) -> None:
    """A line across the panel. Notes of successive lines upright stand above each other, since they may be long."""
    drawn: Any = {"color": "0.55", "linewidth": 0.9, "linestyle": DASHES[rule.dash], "zorder": 1}
    note: Any = {"textcoords": "offset points", "color": INK, "fontsize": 9}
    if rule.axis == "y":
        axes.axhline(rule.at, **drawn)
        axes.annotate(rule.note, (0, rule.at), (4, 4), xycoords=axes.get_yaxis_transform(), **note)
        return
    axes.axvline(rule.at, **drawn)
    upright = panel.upright()
    place = [one for one, _ in upright].index(rule)
    right_half = upright[place][1]
    offset = (4, 4 + HEIGHT * place)
    if right_half:
        offset = (-4, 4 + HEIGHT * place)
        note["ha"] = "right"
    axes.annotate(rule.note, (rule.at, 0), offset, xycoords=axes.get_xaxis_transform(), **note)


def _bars(axes: Axes, bars: Bars) -> None:
    """Boxes from 0, or stacked from the top of the name before."""
    x = np.array(bars.x, float)
    base = np.zeros(len(bars.x))
    share = bars.width / (1 if bars.stacked else len(bars.names))
    for i, (name, colour) in enumerate(zip(bars.names, bars.colours, strict=True)):
        heights = numbers(bars.heights[i])
        there = np.isfinite(heights) & (heights != 0)
        left = x - share / 2 if bars.stacked else x - bars.width / 2 + i * share
        inner = 1 if bars.stacked or len(bars.names) == 1 else 0.92
        sides = (left[there], (left + inner * share)[there])
        ends = (base[there], (base + heights)[there])
        _boxes(axes, sides, ends, name, colour)
        base = base + np.where(there, heights, 0) if bars.stacked else base
    if min(axes.get_ylim()) < 0:
        axes.axhline(0, color="0.7", linewidth=0.8)


def _boxes(axes: Axes, x: Sequence[ArrayLike], y: Sequence[ArrayLike], name: str, colour: str) -> None:
    """Boxes from x[0] to x[1] and from y[0] to y[1], as a single artist."""
    from matplotlib.collections import PolyCollection

    (left, right), (low, high) = (tuple(map(np.asarray, ends)) for ends in (x, y))
    corners = np.array([(left, low), (right, low), (right, high), (left, high)]).transpose(2, 0, 1)
    boxes = PolyCollection(list(corners), facecolors=colour, edgecolors="none", label=name or None)
    boxes.sticky_edges.y.append(0)
    axes.add_collection(boxes)
    axes.autoscale_view()


def _dots(axes: Axes, dots: Dots, size: tuple[float, float]) -> None:
    """A dot for each count, on axes of `size` in inches; the largest share fills its place."""
    if not (places := dots.places()):
        return
    x, y, _, share = map(np.array, zip(*places, strict=True))
    across = 0.85 * 72 * size[0] / len(dots.counts[0])
    down = 0.85 * 72 * size[1] / len(dots.counts)
    area = 0.8 * max(across, 6) * max(down, 6) * share / share.max()
    axes.scatter(x, y, s=np.maximum(area, 2), color=[dots.colours[row] for row in y], linewidths=0)


def _contours(axes: Axes, field: Field) -> None:
    from matplotlib.colors import BoundaryNorm

    levels = list(field.levels)
    values = numbers(field.values)
    beyond: Any = "both" if np.nanmin(values, initial=levels[0]) < levels[0] else "max"
    norm = BoundaryNorm(levels, 256, extend=beyond)
    filled = axes.contourf(field.x, field.y, values, levels, cmap=_ramp(), norm=norm, extend=beyond)
    axes.contour(field.x, field.y, values, levels, colors="white", linewidths=0.4, alpha=0.6)
    drawn: Any = axes.figure
    bar = drawn.colorbar(filled, ax=axes, ticks=levels[::3], pad=0.02, format=lambda v, _: f"{v:.3g}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(which="both", length=0)
    bar.set_label(field.label)


def _ramp() -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ramp", RAMP)


def _relief(axes: Any, field: Field) -> None:
    """A surface in three dimensions. Values above the scale are cut off."""
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    levels = list(field.levels)
    x, y = np.meshgrid(field.x, field.y)
    height = np.minimum(numbers(field.values), levels[-1])
    look = {"cmap": _ramp(), "norm": BoundaryNorm(levels, 256, extend="max"), "shade": False, "linewidth": 0.2}
    axes.plot_surface(x, y, height, rstride=1, cstride=1, edgecolor="white", **look)
    axes.set_zlim(levels[0], levels[-1])
    axes.set_box_aspect((1, 1, 0.7), zoom=0.88)
    axes.view_init(elev=32, azim=-55)
    axes.tick_params(labelsize=8, pad=0)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.pane.set_visible(False)
        axis.line.set_color("0.7")
