"""Accuracy against rounds, as a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records import accuracies, replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

History = list[dict[str, Any]]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The palette of Okabe and Ito, which colour-blind people can tell apart, without black and yellow."""
GREYS = ("#BBBBBB", "#999999")
STYLES = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
INK = "#333333"


def curves(
    history: History | Mapping[str, History],
    path: Path | str,
    *,
    target: float | None = None,
    broadcast_start: int | None = None,
    title: str = "Accuracy on the test set",
    along: str = "round",
) -> None:
    """Draw every model's accuracy on the central test set: the model thin and light, its averages strong on top.

    `history` is a run's metrics (`Records.load()`), or those of several runs by name: then each run has a line style,
    and each average one colour in all of them. `target`, a share, is a dotted line; `broadcast_start` marks the round
    from which on clients receive an average; `along` is what the rounds are called. An average's line begins where it
    leaves the model's. So that differences can be seen, the picture reaches down to where 98 % of the accuracies after
    the first fifth of the rounds lie: the first climb and the deepest dips come from below it.

    Writes a PNG (or whatever the ending of `path` says), whole or not at all. Raises `ImportError` without matplotlib.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    lines = _lines(history if isinstance(history, Mapping) else {"": history})
    figure = Figure(figsize=(9, 5), layout="constrained", dpi=160)
    axes = figure.subplots()
    for line in lines:
        axes.plot(line["rounds"], line["accuracies"], **line["style"])
    axes.set_title(title, loc="left", color=INK, fontsize=13, pad=12, parse_math=False)
    axes.set_xlabel(along, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 5, 10], integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("0.7")
    axes.tick_params(colors="0.4", length=0)
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    if lines:
        _frame(axes, lines, target)
        _marks(axes, target, broadcast_start)
        _name(axes, lines)
    else:
        axes.text(0.5, 0.5, "no evaluation on a test set", ha="center", color="0.5", transform=axes.transAxes)
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix[1:] or "png")
    replace_file(path, content.getvalue())


def _lines(runs: Mapping[str, History]) -> list[dict[str, Any]]:
    """What to draw, the models before the averages."""
    found = {run: accuracies(history) for run, history in runs.items()}
    names = [name for models in found.values() for name in models]
    averages = [name for name in dict.fromkeys(names) if name != "model"]
    lines = []
    for i, (run, models) in enumerate(found.items()):
        for name, points in models.items():
            raw = name == "model"
            if not raw:
                points = _own(points, models.get("model", {}))
            colour = GREYS[i % len(GREYS)] if raw else COLOURS[averages.index(name) % len(COLOURS)]
            style = {"color": colour, "linewidth": 0.8 if raw else 1.8, "linestyle": STYLES[i % len(STYLES)]}
            style |= {"zorder": 2 if raw else 3, "marker": "o" if len(points) == 1 else None}
            label = f"{run}: {name}" if names.count(name) > 1 else name
            lines.append({"label": label, "rounds": list(points), "accuracies": list(points.values()), "style": style})
    return lines


def _own(points: dict[int, float], model: dict[int, float]) -> dict[int, float]:
    """An average's points from where it leaves the model, which it is until it has begun; all, if it never does."""
    rounds = list(points)
    begun = next((i for i, round in enumerate(rounds) if points[round] != model.get(round)), 0)
    return {round: points[round] for round in rounds[max(begun - 1, 0) :]}


def _frame(axes: Axes, lines: list[dict[str, Any]], target: float | None) -> None:
    """Set both axes so that the part after the first climb fills the picture."""
    first = min(line["rounds"][0] for line in lines)
    end = max(line["rounds"][-1] for line in lines)
    points = [point for line in lines for point in zip(line["rounds"], line["accuracies"], strict=True)]
    goal = [] if target is None else [target]
    seen = sorted(a for round, a in points if round >= first + (end - first) / 5 and math.isfinite(a)) or [0.0, 1.0]
    low = min([seen[len(seen) // 50], *goal])
    high = max([a for _, a in points if math.isfinite(a)] + goal + [low + 0.01])
    margin = 0.05 * (high - low)
    axes.set_ylim(max(low - margin, 0), high + margin)
    axes.set_xlim(min(first, end - 1), end)


def _marks(axes: Axes, target: float | None, broadcast_start: int | None) -> None:
    """The target, and where broadcasting starts."""
    (left, right), bottom = axes.get_xlim(), axes.get_ylim()[0]
    notes = []
    if target is not None:
        axes.axhline(target, color=INK, linewidth=1, linestyle=":", zorder=1)
        notes.append((f"target {100 * target:g} %", (left, target)))
    if broadcast_start is not None and left <= broadcast_start <= right:
        axes.axvline(broadcast_start, color="0.5", linewidth=0.8, zorder=1)
        notes.append((f"broadcasting from round {broadcast_start}", (broadcast_start, bottom)))
    for text, place in notes:
        axes.annotate(text, place, (4, 4), textcoords="offset points", color=INK, fontsize=9)


def _name(axes: Axes, lines: list[dict[str, Any]]) -> None:
    """Write each line's name beside its end, moved apart where names would overlap."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    ends = [next((a for a in reversed(line["accuracies"]) if math.isfinite(a)), low) for line in lines]
    ends = [min(max(end, low), high) for end in ends]
    for line, end, place in zip(lines, ends, spread(ends, (high - low) / 22, low, high), strict=True):
        raw = line["style"]["zorder"] == 2
        axes.annotate(
            line["label"],
            (line["rounds"][-1], end),
            (right + (right - left) / 30, place),
            color="0.45" if raw else line["style"]["color"],
            weight="normal" if raw else "bold",
            va="center",
            annotation_clip=False,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": line["style"]["color"], "linewidth": 0.8, "relpos": (0, 0.5)}
            | {"shrinkA": 2, "shrinkB": 1},
        )


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places in [low, high] nearest to `values`, in the sense of least squares, no two closer than `gap`.

    With the values in order, place i less i gaps must not fall, so this is an isotonic regression: neighbours that
    would overlap are pooled into blocks around their mean. If there is not room for all, they reach below `low`.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    blocks: list[tuple[float, int]] = []
    for i, index in enumerate(order):
        mean, size = values[index] - i * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    top = high - (len(values) - 1) * gap
    levels = [min(max(mean, low), top) for mean, size in blocks for _ in range(size)]
    places = dict(zip(order, (level + i * gap for i, level in enumerate(levels)), strict=True))
    return [places[index] for index in range(len(values))]
