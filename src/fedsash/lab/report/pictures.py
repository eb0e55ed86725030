"""Analyses as pictures: what a line, a plane, a decomposition, ... looks like, from its JSON."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...basics.errors import RunError
from ..records import replace_file
from .curves import COLOURS, INK
from .pictures_terrain import Scales, plane, surface

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Analysis = Mapping[str, Any]

TERMS = {
    "squared_error": ("squared error of the ensemble", INK),
    "bias": ("squared bias", COLOURS[0]),
    "train_bias": ("bias on own samples", COLOURS[2]),
    "heterogeneous_bias": ("bias on others' samples", COLOURS[1]),
    "variance": ("variance", COLOURS[3]),
    "covariance": ("covariance", COLOURS[4]),
}


def draw(analysis: Analysis, path: Path | str) -> None:
    """Draw one analysis, of any kind, as what the ending of `path` says (PNG, PDF, ...), whole or not at all.

    Raises `ValueError` for a kind that it does not know, `ImportError` without matplotlib.
    """
    draw_all({Path(path): analysis})


def draw_all(analyses: Mapping[Path, Analysis]) -> None:
    """Draw each analysis into its file; planes have one colour scale in common, and so have surfaces."""
    for kind in dict.fromkeys(analysis["kind"] for analysis in analyses.values()):
        if kind not in KINDS:
            raise RunError(f"there is no picture of the kind {kind!r}; there are {', '.join(KINDS)}")
        alike = {path: analysis for path, analysis in analyses.items() if analysis["kind"] == kind}
        scales = Scales.of(list(alike.values())) if kind in ("plane", "surface") else None
        for path, analysis in alike.items():
            _save(KINDS[kind](analysis, scales), analysis["title"], path)


def _save(figure: Figure, title: str, path: Path) -> None:
    figure.suptitle(title, x=0.012, ha="left", color=INK, fontsize=13, parse_math=False)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:] or "png", dpi=130)
    replace_file(path, content.getvalue())


def _line(analysis: Analysis, scales: Any) -> Figure:
    """Loss above error, the two models marked."""
    figure = _figure(7, 5.4)
    above, below = figure.subplots(2, sharex=True)
    beta = numbers(analysis["beta"])
    for axes, name, colour in ((above, "loss", COLOURS[0]), (below, "error", COLOURS[1])):
        axes.plot(beta, numbers(analysis[name]), color=colour, linewidth=2, marker="o", markersize=3)
        for place in (0, 1):
            axes.axvline(place, color="0.6", linewidth=0.8, zorder=1)
        _plain(axes, f"{name} ({analysis['split']})")
    for place, name in zip((1, 0), analysis["models"], strict=True):
        above.annotate(name, (place, 1), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                       color=INK, fontsize=9, va="top", parse_math=False)  # fmt: skip
    _percent(below)
    below.set_xlabel(f"beta:  beta * {analysis['models'][0]} + (1 - beta) * {analysis['models'][1]}", color=INK,
                     parse_math=False)  # fmt: skip
    return figure


def _decomposition(analysis: Analysis, scales: Any) -> Figure:
    """The terms of the error, how far apart the clients' models are, and how alike they answer."""
    figure = _figure(11, 4.4)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    rounds = analysis["rounds"]
    several = set(analysis["variance"]) != {None}  # with one run the squared bias is the squared error
    for name, (label, colour) in TERMS.items():
        if several or name != "bias":
            _over(left, rounds, analysis.get(name), label, colour)
    _over(middle, rounds, analysis["locality_max"], "largest", COLOURS[1])
    _over(middle, rounds, analysis["locality_mean"], "mean", COLOURS[0])
    _over(right, rounds, analysis["cka"], "", COLOURS[2])
    _plain(left, "error of the mean of answers, and its terms")
    _plain(middle, "distance of clients from their mean")
    _plain(right, "CKA of two clients' answers")
    for axes in (left, middle, right):
        axes.set_xlabel("saved round", color=INK)
        axes.xaxis.get_major_locator().set_params(integer=True)
    middle.set_ylim(bottom=0)
    right.set_ylim(0, 1)
    below = {"loc": "upper left", "bbox_to_anchor": (0, -0.16), "ncols": 2, "borderpad": 0}
    for axes in (left, middle):
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, **below)
    return figure


def _flatness(analysis: Analysis, scales: Any) -> Figure:
    """Bars of the eigenvalues and of the sharpness, a colour for each model."""
    figure = _figure(9, 4)
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    models = analysis["models"]
    eigenvalues = {name: found["eigenvalues"] for name, found in models.items()}
    sharpness = {name: list(found["sharpness"].values()) for name, found in models.items()}
    most = max(map(len, eigenvalues.values()))
    _bars(left, eigenvalues, [str(i + 1) for i in range(most)])
    _bars(right, sharpness, list(next(iter(models.values()))["sharpness"]))
    _plain(left, f"largest eigenvalues of the Hessian ({analysis['split']})")
    _plain(right, "rise of the loss at distance rho")
    left.set_xlabel("eigenvalue", color=INK)
    right.set_xlabel("rho", color=INK)
    left.legend(frameon=False, fontsize=9, labelcolor=INK)
    return figure


def _window(analysis: Analysis, scales: Any) -> Figure:
    """The weight of every round's update and of every client's, and how far the models lie from their mean."""
    figure = _figure(11, 4)
    rounds, clients, away = figure.subplots(1, 3, width_ratios=(1.2, 1.2, 1))
    rounds.fill_between(analysis["rounds"], numbers(analysis["weights"]), step="mid", color=COLOURS[0], alpha=0.25)
    rounds.step(analysis["rounds"], numbers(analysis["weights"]), where="mid", color=COLOURS[0], linewidth=1.5)
    weights = np.sort(numbers(analysis["clients"]))[::-1]
    clients.bar(np.arange(1, len(weights) + 1), weights, width=1, color=COLOURS[1])
    away.plot(analysis["distance_rounds"], numbers(analysis["distances"]), color=COLOURS[2], marker="o", markersize=3)
    for axes, label, below in (
        (rounds, "weight of a round's update in the mean", "round"),
        (clients, "weight of all updates of a client", "clients, by their weight"),
        (away, "distance of a model from the mean", "round of the model"),
    ):
        _plain(axes, label)
        axes.set_xlabel(below, color=INK)
        axes.margins(x=0.02)
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _averages(analysis: Analysis, scales: Any) -> Figure:
    """The accuracy of windows and of EMAs by the number of models that they average, the model's own below."""
    figure = _figure(8, 4.4)
    axes = figure.subplots()
    sizes = analysis["sizes"]
    _over(axes, sizes, analysis["windows"]["accuracy"], "the mean of the last W models", COLOURS[0])
    _over(axes, sizes, analysis["emas"]["accuracy"], "EMA, W = (1 + decay) / (1 - decay)", COLOURS[1])
    _over(axes, sizes, analysis["windows"]["held_out"], "the mean, on held-out data", "0.7")
    if analysis["model"] is not None:
        axes.axhline(analysis["model"], color=INK, linewidth=1, linestyle="--", label="the model itself")
    if analysis["chosen"] is not None:
        axes.axvline(analysis["chosen"], color="0.6", linewidth=0.8, zorder=1)
    axes.set_xscale("log")
    axes.set_xlabel("W, the number of models (log scale)", color=INK)
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:g}")
    _plain(axes, f"accuracy ({analysis['split']}) after round {analysis['round']}")
    _percent(axes)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return figure


KINDS: dict[str, Callable[[Analysis, Any], Figure]] = {
    "line": _line,
    "plane": plane,
    "surface": surface,
    "decomposition": _decomposition,
    "flatness": _flatness,
    "window": _window,
    "averages": _averages,
}


def numbers(values: Any) -> NDArray[np.float64]:
    """Numbers as JSON has them, at any depth; null is NaN."""
    return np.array(values, dtype=np.float64)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _over(axes: Axes, rounds: Sequence[int], values: Any, label: str, colour: str) -> None:
    """A line over rounds, unless nothing is known of it."""
    if values is not None and np.isfinite(numbers(values)).any():
        axes.plot(rounds, numbers(values), color=colour, label=label, linewidth=1.8, marker="o", markersize=3)


def _bars(axes: Axes, heights: Mapping[str, Sequence[float]], ticks: Sequence[str]) -> None:
    """Groups of bars, in each one bar a model."""
    width = 0.8 / len(heights)
    for i, (name, values) in enumerate(heights.items()):
        places = np.arange(len(values)) + (i - (len(heights) - 1) / 2) * width
        axes.bar(places, numbers(values), 0.92 * width, label=name, color=COLOURS[i % len(COLOURS)])
    axes.set_xticks(range(len(ticks)), ticks)
    axes.axhline(0, color="0.7", linewidth=0.8)


def _plain(axes: Axes, title: str) -> None:
    """The look of the house: no frame, a light grid, what is measured above on the left."""
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("0.7")
    axes.tick_params(colors="0.4", length=0, labelsize=9)
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)


def _percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")
