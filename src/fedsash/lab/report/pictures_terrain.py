"""Planes and surfaces as pictures: filled contours, and heights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .curves import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Analysis = Mapping[str, Any]
Floats = NDArray[np.float64]

COLOURMAP = "viridis"
LEVELS = 18
OUTER = 0.9
"""The share of all points that lies within the levels: far from the models the loss can be anything."""
NAMES = {"loss": "loss", "error": "error (%)"}


@dataclass(frozen=True)
class Scales:
    """The levels of the contours of `loss` and of `error` (in per cent), ascending."""

    loss: Floats
    error: Floats

    @classmethod
    def of(cls, analyses: Sequence[Analysis]) -> Scales:
        """Scales that suit all of the analyses."""
        return cls(*(_levels(np.concatenate([_grid(one, name).ravel() for one in analyses])) for name in NAMES))


def plane(analysis: Analysis, scales: Scales) -> Figure:
    """Contours of loss and error, with the three models, and a white cross for their mean."""
    from matplotlib.figure import Figure

    flat = np.ptp(analysis["y"]) / np.ptp(analysis["x"])
    stacked = flat < 0.6
    size = (8.5, 2 * 7 * flat + 2.4) if stacked else (11, min(4.2 * flat, 9) + 1.3)
    figure = Figure(figsize=size, layout="constrained")
    for axes, name in zip(figure.subplots(*((2, 1) if stacked else (1, 2))), NAMES, strict=True):
        _contours(figure, axes, analysis, name, scales)
        for model, (x, y) in analysis["models"].items():
            _mark(axes, model, x, y)
        axes.plot(*analysis["mean"], "x", color="white", markersize=9, markeredgewidth=2.5)
        axes.set_xlabel("distance in parameter space", color=INK)
    return figure


def surface(analysis: Analysis, scales: Scales) -> Figure:
    """Contours of loss and error, and the loss as heights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.5), layout="constrained")
    for i, name in enumerate(NAMES):
        axes = figure.add_subplot(1, 3, i + 1)
        _contours(figure, axes, analysis, name, scales)
        axes.plot(0, 0, "o", color="white", markeredgecolor=INK, markersize=6)
        axes.set_xlabel("a, along the first direction", color=INK)
        axes.set_ylabel("b, along the second", color=INK)
    _heights(figure.add_subplot(1, 3, 3, projection="3d"), analysis, "loss", scales)
    return figure


def _contours(figure: Figure, axes: Axes, analysis: Analysis, name: str, scales: Scales) -> None:
    from matplotlib.colors import BoundaryNorm

    levels, values = getattr(scales, name), _grid(analysis, name)
    norm = BoundaryNorm(levels, 256, extend="max")
    filled = axes.contourf(analysis["x"], analysis["y"], values, levels, cmap=COLOURMAP, norm=norm, extend="max")
    axes.contour(analysis["x"], analysis["y"], values, levels, colors="white", linewidths=0.4, alpha=0.6)
    bar = figure.colorbar(filled, ax=axes, ticks=levels[::3], pad=0.02, format=lambda v, _: f"{v:.3g}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(which="both", colors="0.4", length=0, labelsize=9)
    axes.set_title(f"{NAMES[name]}, {analysis['split']}", loc="left", color=INK, fontsize=10)
    axes.set_aspect("equal", adjustable="box")
    axes.spines[:].set_visible(False)
    axes.tick_params(colors="0.4", length=0, labelsize=9)


def _heights(axes: Any, analysis: Analysis, name: str, scales: Scales) -> None:
    """A surface in three dimensions; what is above the scale is cut off there."""
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    levels = getattr(scales, name)
    x, y = np.meshgrid(analysis["x"], analysis["y"])
    height = np.minimum(_grid(analysis, name), levels[-1])
    norm = BoundaryNorm(levels, 256, extend="max")
    look = {"cmap": COLOURMAP, "norm": norm, "shade": False, "linewidth": 0.2, "edgecolor": "white"}
    axes.plot_surface(x, y, height, rstride=1, cstride=1, **look)
    axes.set_zlim(levels[0], levels[-1])
    axes.set_box_aspect((1, 1, 0.7))
    axes.view_init(elev=32, azim=-55)
    axes.set_title(NAMES[name], loc="left", color=INK, fontsize=10)
    axes.tick_params(colors="0.4", labelsize=8, pad=0)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.pane.set_visible(False)
        axis.line.set_color("0.7")


def _mark(axes: Axes, model: str, x: float, y: float) -> None:
    """A model's place and name, in white on a dark edge, since it may lie on any colour."""
    from matplotlib.patheffects import withStroke

    axes.plot(x, y, "o", color="white", markeredgecolor=INK, markersize=7)
    edge = [withStroke(linewidth=2.5, foreground=INK)]
    axes.annotate(model, (x, y), (0, 8), textcoords="offset points", ha="center", color="white", fontsize=9,
                  weight="bold", path_effects=edge, parse_math=False)  # fmt: skip


def _grid(analysis: Analysis, name: str) -> Floats:
    """Values `[y, x]`; errors in per cent; null is NaN."""
    values = np.array(analysis[name], dtype=np.float64)
    return 100 * values if name == "error" else values


def _levels(values: Floats) -> Floats:
    """Levels from the lowest value to the `OUTER` quantile, close to each other where the valley is."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(np.quantile(finite, OUTER))) if len(finite) else (0.0, 1.0)
    high = max(high, low + 1e-6 * max(1.0, abs(low)))
    levels: Floats = low + (high - low) * np.linspace(0, 1, LEVELS + 1) ** 1.6
    return levels
