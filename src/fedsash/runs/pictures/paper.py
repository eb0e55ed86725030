"""Pictures for papers, drawn by matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from ...settings.errors import library
from ...system.files import replace_file
from .layers import draw_layer, name_points, numbers, show_whole_marks
from .picture import Axis, Bars, Field, Line, Panel, Picture, Points, Spans
from .scales import common
from .styles import GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
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
"""The height of a line below the panels, in inches."""
WORD = 0.066
"""The width of a letter below the panels, in inches."""
LEFT = 0.012
"""Where the title and the lines below the panels begin, as a share of the width."""
LETTER = 0.075
"""The width of a letter of a legend, in inches."""
HANDLE = 0.75
"""The width of the rest of a legend's entry, in inches."""
NAMED = 8
"""The most lines in a legend. Of more, readers could not tell which is which: their names stand at their ends."""
BARS = 24
"""The most bars side by side in a legend: more would leave no room for the picture."""
NAMES_AT_ENDS = 22
"""So many names at the ends of lines fit above each other."""


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
        fig = figure(picture)
        fig.savefig(content, format=form, bbox_inches=_whole(fig))
    return content.getvalue()


def _whole(fig: Figure) -> Bbox:
    """The figure's rectangle in inches, made larger where a label would be cut.

    The layout leaves too little room below panels of a fixed aspect, which become lower than it has planned.
    """
    from matplotlib.transforms import Bbox

    fig.draw_without_rendering()
    needed = fig.get_tightbbox().padded(EDGE)
    planned = fig.bbox_inches
    fits_across = planned.x0 <= needed.x0 and needed.x1 <= planned.x1
    fits_down = planned.y0 <= needed.y0 and needed.y1 <= planned.y1
    if fits_across and fits_down:
        return planned
    return Bbox.union([planned, needed])


def figure(picture: Picture) -> Figure:
    """The picture as a figure of matplotlib, with axes for each panel in their order."""
    with library("matplotlib", "pictures", "fedsash[lab]"):
        from matplotlib import style

    with style.context(["default", HOUSE]):
        return _figure(picture)


def _figure(picture: Picture) -> Figure:
    """The figure, in the style that holds now."""
    from matplotlib.figure import Figure

    [scaled] = common([picture])
    panels = scaled.panels
    rows = [panels[start : start + scaled.columns] for start in range(0, len(panels), scaled.columns)]
    widths = _widths(rows)
    heights = [max(panel.height for panel in row) for row in rows]
    width = sum(widths)
    below = _lines_below(scaled, width)
    height = sum(heights) + TITLE + BELOW * len(below)

    fig = Figure((width, height), layout="constrained")
    fig.suptitle(scaled.title, x=LEFT, ha="left", color=INK)
    if below:
        margin = BELOW * (len(below) + 0.5) / height
        fig.set_layout_engine("constrained", rect=(0, margin, 1, 1 - margin))
        fig.text(LEFT, margin, "\n".join(below), size=8, va="top", color=INK)

    grid = fig.add_gridspec(len(rows), len(widths), width_ratios=widths, height_ratios=heights)
    has_others_beside = len(widths) > 1
    every_axes = []
    for number, panel in enumerate(panels):
        row, column = divmod(number, scaled.columns)
        axes = _axes(fig, grid[row, column], panel, has_others_beside)
        if len(panels) > 1:
            axes.set_title(panel.name)
        every_axes.append(axes)
    if scaled.columns == 1:
        _share(panels, every_axes)
    return fig


def _widths(rows: Sequence[Sequence[Panel]]) -> list[float]:
    """The width of each column: that of its widest panel. The last row may lack panels."""
    widths = []
    for column in range(len(rows[0])):
        widths.append(max(row[column].width for row in rows if column < len(row)))
    return widths


def _lines_below(picture: Picture, width: float) -> list[str]:
    """The sentences below the panels, on lines that fit into so many inches."""
    lines = []
    for sentence in picture.below:
        lines += wrap(sentence, int(width / WORD))
    return lines


def _axes(fig: Figure, place: Any, panel: Panel, has_others_beside: bool) -> Axes:
    """A panel's axes, with all its layers."""
    projection = "3d" if _has_relief(panel) else None
    axes: Axes = fig.add_subplot(place, projection=projection)
    for layer in panel.layers:
        draw_layer(axes, layer, panel)
    if all(isinstance(layer, Points) for layer in panel.layers):
        axes.margins(0.06, 0.15)  # their names stand above them
    _scale(axes, "x", panel.x)
    _scale(axes, "y", panel.y)

    on_colour = any(isinstance(layer, Field) for layer in panel.layers)
    if on_colour:
        axes.grid(False)
        axes.spines[:].set_visible(False)
    else:
        show_whole_marks(axes)
    points = [layer for layer in panel.layers if isinstance(layer, Points)]
    if points:
        name_points(axes, points, on_colour)
    if panel.square:
        axes.set_aspect("equal", adjustable="box")
    _name_layers(axes, panel, has_others_beside)
    return axes


def _has_relief(panel: Panel) -> bool:
    """Whether the panel is drawn in three dimensions."""
    return any(isinstance(layer, Field) and layer.relief for layer in panel.layers)


def _name_layers(axes: Axes, panel: Panel, has_others_beside: bool) -> None:
    """Write the names of the panel's layers: in a legend, or at the ends of lines."""
    if not panel.layers:
        axes.text(0.5, 0.5, "nothing is known", ha="center", color="0.5", transform=axes.transAxes)
        return
    names = axes.get_legend_handles_labels()[1]
    lines = _named_lines(panel)
    most = NAMED
    if any(isinstance(layer, Bars) and not layer.stacked for layer in panel.layers):
        most = BARS
    if lines and (panel.ends or len(names) > NAMED):
        _ends(axes, lines)
    elif 1 < len(names) <= most:
        axes.legend(**_legend(panel, names, has_others_beside))


def _named_lines(panel: Panel) -> list[Line]:
    """The lines that are drawn and have a name."""
    lines = []
    for layer in panel.layers:
        if isinstance(layer, Line) and layer.name and layer.shown and len(layer.x) > 0:
            lines.append(layer)
    return lines


def _legend(panel: Panel, names: Sequence[str], has_others_beside: bool) -> dict[str, Any]:
    """Place the legend: below a panel beside others, above a crowded panel, otherwise inside."""
    if has_others_beside:
        width_of_entry = LETTER * max(map(len, names)) + HANDLE
        columns = int(panel.width / width_of_entry)
        columns = max(1, min(len(names), columns))
        return {"loc": "upper left", "bbox_to_anchor": (0, -0.14), "ncols": columns, "borderpad": 0}
    if _crowded(panel):
        return {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": len(names), "borderpad": 0}
    return {}


def _crowded(panel: Panel) -> bool:
    """Whether the panel has too little free space for a legend."""
    return any(isinstance(layer, Bars | Spans) for layer in panel.layers)


def _scale(axes: Axes, which: Literal["x", "y"], axis: Axis) -> None:
    """One axis: its label, its range and its ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    drawn: XAxis | YAxis = axes.yaxis
    if which == "x":
        drawn = axes.xaxis
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
            if not super().__call__(value, place):  # it is left out
                return ""
            return f"{value:.3g}"

    return ThreeDigits(minor_thresholds=(1, 0.5))


def _share(panels: Sequence[Panel], every_axes: Sequence[Axes]) -> None:
    """Write the x axis only below the last of successive panels that have the same."""
    for (above, below), axes in zip(pairwise(panels), every_axes, strict=False):
        if above.x == below.x:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)


def _ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Write each line's name beside its end, moved apart where names would overlap."""
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    # Places are moved apart as they are seen, on the scale of the axis.
    to_paper: Callable[[float], float] = float
    from_paper: Callable[[float], float] = float
    if axes.get_yscale() == "log":
        to_paper = math.log
        from_paper = math.exp
    bottom = to_paper(low)
    top = to_paper(high)
    ends = []
    wanted = []
    for line in lines:
        x, y = _last_point(line, otherwise=(left, low))
        inside = min(max(y, low), high)
        ends.append((x, inside))
        wanted.append(to_paper(inside))
    places = spread(wanted, (top - bottom) / NAMES_AT_ENDS, bottom, top)
    for line, end, place in zip(lines, ends, places, strict=True):
        beside = (right + (right - left) / 30, from_paper(place))
        _name_end(axes, line, end, beside)


def _last_point(line: Line, otherwise: tuple[float, float]) -> tuple[float, float]:
    """The last point of a line with a finite value: it may end before others, or have none at all."""
    last = otherwise
    for x, y in zip(numbers(line.x), numbers(line.y), strict=False):
        if math.isfinite(y):
            last = (x, y)
    return last


def _name_end(axes: Axes, line: Line, end: tuple[float, float], place: tuple[float, float]) -> None:
    """Write a line's name at a place, with a stroke to the line's end."""
    colour = line.style.colour
    ink = colour
    if colour == GREY:  # too light for letters
        ink = "0.45"
    weight = "bold"
    if line.style.quiet:
        weight = "normal"
    stroke = {
        "arrowstyle": "-",
        "color": colour,
        "linewidth": 0.8,
        "relpos": (0, 0.5),
        "shrinkA": 2,
        "shrinkB": 1,
    }
    axes.annotate(
        line.name, end, place, color=ink, weight=weight, va="center", annotation_clip=False, arrowprops=stroke
    )


@dataclass
class _Block:
    """Neighbours in `spread` that lie as close to each other as they may: their common level, and how many they are."""

    level: float
    size: int = 1

    def pooled(self, other: _Block) -> _Block:
        """Both as one, at the mean of their levels."""
        size = self.size + other.size
        return _Block((self.level * self.size + other.level * other.size) / size, size)


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places in [low, high] that are nearest to `values` (least squares), with at least `gap` between any two.

    With sorted values, place_i - i * gap must not decrease, so this is an isotonic regression: neighbours that would
    overlap are pooled into blocks around their mean. If there is too little room, the places reach below `low`.
    """
    ascending = sorted(range(len(values)), key=values.__getitem__)
    blocks: list[_Block] = []
    for rank, index in enumerate(ascending):
        block = _Block(values[index] - rank * gap)
        while blocks and blocks[-1].level > block.level:
            block = blocks.pop().pooled(block)
        blocks.append(block)
    highest = high - (len(values) - 1) * gap
    levels: list[float] = []
    for block in blocks:
        level = min(max(block.level, low), highest)
        levels += [level] * block.size
    places = [0.0] * len(values)
    for rank, index in enumerate(ascending):
        places[index] = levels[rank] + rank * gap
    return places
