"""Pictures for papers, drawn by matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ...settings.errors import library
from ...system.files import replace_file
from .layers import draw_layer, name_points, numbers, show_whole_marks
from .picture import Axis, Bars, Field, Line, Panel, Picture, Points, Spans
from .scales import common
from .styles import GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter
    from matplotlib.transforms import Bbox

HOUSE: Any = {
    "text.parse_math": False,
    "figure.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "0.7",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.xmargin": 0.02,
    "grid.color": "0.92",
    "xtick.color": "0.4",
    "ytick.color": "0.4",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 3.2,
    "legend.labelcolor": INK,
    "savefig.dpi": 130,
}
"""The common style: a light grid and no frame. It changes matplotlib's defaults, and not the settings of a file
`matplotlibrc`: one that lies in the working directory could have text set by LaTeX."""
TITLE = 0.45
"""Inches for the title."""
EDGE = 0.02
"""Inches between a label and the edge."""
BELOW = 0.17
WORD = 0.066
"""Inches for a line below the panels, and for a letter of it."""
LETTER = 0.075
HANDLE = 0.75
"""Inches per letter of a legend, and for the rest of an entry."""
NAMED = 8
"""The most lines in a legend. Of more, readers could not tell which is which: their names stand at their ends."""
BARS = 24
"""The most bars side by side in a legend: more would leave no room for the picture."""


def can_draw() -> bool:
    """Whether matplotlib is installed. The core comes without it, and a run then draws no pictures."""
    return find_spec("matplotlib") is not None


def draw(picture: Picture, path: Path | str) -> None:
    """Draw a picture into the file `path`, completely or not at all. Its extension gives the format (PNG, PDF, SVG).

    Raises `LibraryError` without matplotlib, and `ValueError` for an unknown extension.
    """
    replace_file(path, drawn(picture, Path(path).suffix[1:] or "png"))


def drawn(picture: Picture, form: str) -> bytes:
    """A picture as a file of the format `form`. Raises errors as `draw`."""
    with library("matplotlib", "pictures", "fedsash[lab]"):
        from matplotlib import style

    content = io.BytesIO()
    with style.context(["default", HOUSE]):
        made = figure(picture)
        made.savefig(content, format=form, bbox_inches=_whole(made))
    return content.getvalue()


def _whole(made: Figure) -> Bbox:
    """The figure's rectangle in inches, made larger where a label would be cut.

    The layout leaves too little room below panels of a fixed aspect, which become lower than it has planned.
    """
    from matplotlib.transforms import Bbox

    made.draw_without_rendering()
    needed = made.get_tightbbox().padded(EDGE)
    planned = made.bbox_inches
    if planned.x0 <= needed.x0 and planned.y0 <= needed.y0 and needed.x1 <= planned.x1 and needed.y1 <= planned.y1:
        return planned
    return Bbox.union([planned, needed])


def figure(picture: Picture) -> Figure:
    """The picture as a figure of matplotlib, with axes for each panel in their order."""
    with library("matplotlib", "pictures", "fedsash[lab]"):
        from matplotlib import style

    with style.context(["default", HOUSE]):
        return _figure(picture)


def _figure(picture: Picture) -> Figure:
    from matplotlib.figure import Figure

    (picture,) = common([picture])
    panels = picture.panels
    columns = picture.columns
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    widths = [max(row[i].width for row in rows if i < len(row)) for i in range(min(columns, len(panels)))]
    heights = [max(panel.height for panel in row) for row in rows]
    below = [line for text in picture.below for line in wrap(text, int(sum(widths) / WORD))]
    height = sum(heights) + TITLE + BELOW * len(below)
    made = Figure((sum(widths), height), layout="constrained")
    made.suptitle(picture.title, x=0.012, ha="left", color=INK)
    if below:
        margin = BELOW * (len(below) + 0.5) / height
        made.set_layout_engine("constrained", rect=(0, margin, 1, 1 - margin))
        made.text(0.012, margin, "\n".join(below), size=8, va="top", color=INK)
    grid = made.add_gridspec(len(rows), len(widths), width_ratios=widths, height_ratios=heights)
    every = [_axes(made, grid[divmod(i, columns)], panel, len(widths) > 1) for i, panel in enumerate(panels)]
    for panel, axes in zip(panels, every, strict=True):
        if len(panels) > 1:
            axes.set_title(panel.name)
    if columns == 1:
        _share(panels, every)
    return made


def _axes(made: Figure, place: Any, panel: Panel, beside: bool) -> Axes:
    """A panel's axes, with all its layers. `beside` says whether the picture has other panels in the same row."""
    deep = any(isinstance(layer, Field) and layer.relief for layer in panel.layers)
    axes: Axes = made.add_subplot(place, projection="3d" if deep else None)
    for layer in panel.layers:
        draw_layer(axes, layer, panel)
    if all(isinstance(layer, Points) for layer in panel.layers):
        axes.margins(0.06, 0.15)  # their names stand above them
    _scale(axes, "x", panel.x)
    _scale(axes, "y", panel.y)
    points = [layer for layer in panel.layers if isinstance(layer, Points)]
    on_colour = any(isinstance(layer, Field) for layer in panel.layers)
    if on_colour:
        axes.grid(False)
        axes.spines[:].set_visible(False)
    else:
        show_whole_marks(axes)
    if points:
        name_points(axes, points, on_colour)
    if panel.square:
        axes.set_aspect("equal", adjustable="box")
    names = axes.get_legend_handles_labels()[1]
    lines = [layer for layer in panel.layers if isinstance(layer, Line) and layer.name and layer.shown and len(layer.x)]
    if not panel.layers:
        axes.text(0.5, 0.5, "nothing is known", ha="center", color="0.5", transform=axes.transAxes)
    elif lines and (panel.ends or len(names) > NAMED):
        _ends(axes, lines)
    elif 1 < len(names) <= (BARS if any(isinstance(of, Bars) and not of.stacked for of in panel.layers) else NAMED):
        axes.legend(**_legend(panel, names, beside))
    return axes


def _legend(panel: Panel, names: Sequence[str], beside: bool) -> dict[str, Any]:
    """Place the legend: below a panel `beside` others, above a crowded panel, otherwise inside."""
    if beside:
        columns = max(1, min(len(names), int(panel.width / (LETTER * max(map(len, names)) + HANDLE))))
        return {"loc": "upper left", "bbox_to_anchor": (0, -0.14), "ncols": columns, "borderpad": 0}
    if _crowded(panel):
        return {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": len(names), "borderpad": 0}
    return {}


def _crowded(panel: Panel) -> bool:
    """Whether the panel has too little free space for a legend."""
    return any(isinstance(layer, Bars | Spans) for layer in panel.layers)


def _scale(axes: Axes, which: str, axis: Axis) -> None:
    """One axis: its label, its range and its ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    drawn = axes.xaxis if which == "x" else axes.yaxis
    drawn.set_label_text(axis.label)
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
        drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        drawn.set_minor_formatter(_within_a_decade())
    elif axis.ticks is None:
        drawn.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=axis.whole))
    if axis.ticks is not None:
        drawn.set_ticks(list(axis.ticks), list(axis.ticks.values()))
    getattr(axes, f"set_{which}lim")(axis.low, axis.high)


def _within_a_decade() -> LogFormatter:
    """Numbers of three digits at minor ticks, on a logarithmic axis of a decade or less; matplotlib's have one."""
    from matplotlib.ticker import LogFormatter

    class ThreeDigits(LogFormatter):
        def __call__(self, value: float, place: int | None = None) -> str:
            return f"{value:.3g}" if super().__call__(value, place) else ""

    return ThreeDigits(minor_thresholds=(1, 0.5))


def _share(panels: Sequence[Panel], every: Sequence[Axes]) -> None:
    """Write the x axis only below the last of successive panels that have the same."""
    for (above, below), axes in zip(pairwise(panels), every, strict=False):
        if above.x == below.x:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)


def _ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Write each line's name beside its end, moved apart where names would overlap."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    to, back = (math.log, math.exp) if axes.get_yscale() == "log" else (float, float)
    known = [[(x, y) for x, y in zip(numbers(of.x), numbers(of.y), strict=False) if math.isfinite(y)] for of in lines]
    last = [points[-1] if points else (left, low) for points in known]  # a line may end before the others
    levels = [min(max(y, low), high) for _, y in last]
    bottom = to(low)
    top = to(high)
    places = spread([to(level) for level in levels], (top - bottom) / 22, bottom, top)
    for line, (end, _), level, place in zip(lines, last, levels, map(back, places), strict=True):
        quiet = line.style.quiet
        colour = line.style.colour
        ink = colour
        if colour == GREY:  # too light for letters
            ink = "0.45"
        axes.annotate(
            line.name,
            (end, level),
            (right + (right - left) / 30, place),
            color=ink,
            weight="normal" if quiet else "bold",
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "relpos": (0, 0.5)}
            | {"shrinkA": 2, "shrinkB": 1},
        )


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places in [low, high] that are nearest to `values` (least squares), with at least `gap` between any two.

    With sorted values, place_i - i * gap must not decrease, so this is an isotonic regression: neighbours that would
    overlap are pooled into blocks around their mean. If there is too little room, the places reach below `low`.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    blocks: list[tuple[float, int]] = []
    for i, index in enumerate(order):
        mean = values[index] - i * gap
        size = 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean = (before * count + mean * size) / (count + size)
            size = count + size
        blocks.append((mean, size))
    top = high - (len(values) - 1) * gap
    levels = [min(max(mean, low), top) for mean, size in blocks for _ in range(size)]
    places = dict(zip(order, (level + i * gap for i, level in enumerate(levels)), strict=True))
    return [places[index] for index in range(len(values))]
