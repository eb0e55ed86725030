"""The metric that decides, against rounds, time or client trips."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from ...evaluation import Curves
from ...tasks import Criterion
from .picture import Axis, Line, Panel, Picture, Rule
from .styles import QUIET, look

WINDOW = 10
ORDER = 2
"""The window and the order of the Savitzky-Golay filter of IMA's figures."""

BEYOND = "The axis leaves out some values, mostly of the first steps, so that differences can be seen."


def curves(found: Curves, title: str = "", *, broadcast_start: int | None = None, along: str = "round") -> Picture:
    """Every model's values by round. The global model's line is thin; its averages are on top.

    The target is a dotted line. `broadcast_start` marks the round from which clients receive an average. `along` is the
    label of the x axis.
    """
    name = found.criterion.name
    drawn = panel(name, lines(found), found.criterion, found.criterion.target, broadcast_start, along)
    below = beyond([drawn])
    return Picture(title or capital(found.title), [drawn], caption=" ".join(below), below=below)


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def lines(
    found: Curves, averages: Sequence[str] = (), at: Mapping[int, float] | None = None, smoothed: bool = False
) -> list[Line]:
    """One line for each model; shares are in per cent. The global model is first and thin. An average's line begins
    where the average begins to differ from the global model.

    An average's style depends on its place among `averages` (by default those of these models). `at` has the x of each
    round, if x is not the round itself; rounds that it does not have are left out. `smoothed` lines can be smoothed.
    """
    models = found.models
    scale = found.criterion.scale
    averages = averages or [model for model in models if model != "model"]
    made = []
    for model in sorted(models, key=lambda model: model != "model"):
        points = models[model]
        style = QUIET if model == "model" else look(averages.index(model))
        begins = 0 if model == "model" else _leaves(points, models.get("model", {}))
        line = _line(model, {round: scale * value for round, value in points.items()}, at, smoothed)
        smooth = line.smooth and line.smooth[begins:]
        made.append(Line(model, line.x[begins:], line.y[begins:], style, smooth=smooth))
    return made


def _line(name: str, points: Mapping[int, float], at: Mapping[int, float] | None, smoothed: bool) -> Line:
    """All points of a model."""
    known = {round: value for round, value in points.items() if at is None or round in at}
    x = list(known) if at is None else [at[round] for round in known]
    y = list(known.values())
    return Line(name, x, y, look(0), smooth=smooth(y) if smoothed else None)


def panel(
    name: str,
    lines: Sequence[Line],
    criterion: Criterion,
    target: float | None = None,
    broadcast_start: int | None = None,
    along: str = "round",
) -> Panel:
    """Lines of the criterion, with a target and the round from which an average is broadcast.

    The axis ends beyond 98 % of the values after the first fifth of the rounds, so that differences can be seen. The
    first steps and the deepest dips may lie outside of the panel.
    """
    label = criterion.label()
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True) if x is not None and y is not None]
    if not points:
        return Panel(name, Axis(along), Axis(label), [], 9, 5)
    first = min(x for x, _ in points)
    end = max(x for x, _ in points)
    rules = []
    if target is not None:
        rules.append(Rule(criterion.scale * target, "y", f"target {criterion.plain(target)}", "dot"))
    if broadcast_start is not None and first <= broadcast_start <= end:
        rules.append(Rule(broadcast_start, "x", f"broadcasting from round {broadcast_start}"))
    margin = 0.01 * (end - first) or 0.5
    x = Axis(along, first - margin, end + margin, whole=True)
    goal = [] if target is None else [criterion.scale * target]
    y = Axis(label, *_reach(points, first + (end - first) / 5, goal, criterion))
    return Panel(name, x, y, [*rules, *lines], 9, 5, ends=True)


def beyond(panels: Sequence[Panel]) -> list[str]:
    """A sentence for a caption where the axis of a panel leaves out some values; otherwise none."""
    for panel in panels:
        low = panel.y.low
        high = panel.y.high
        if low is None or high is None:
            continue
        values = [y for layer in panel.layers if isinstance(layer, Line) for y in layer.y if y is not None]
        if any(y < low or y > high for y in values):
            return [BEYOND]
    return []


def _leaves(points: Mapping[int, float], model: Mapping[int, float]) -> int:
    """The index of an average's last point that equals the global model. An average equals it until it begins.

    Zero if the two are equal at all points.
    """
    rounds = list(points)
    begun = next((i for i, round in enumerate(rounds) if points[round] != model.get(round)), 0)
    return max(begun - 1, 0)


def _reach(
    points: Sequence[tuple[float, float]], climbed: float, goal: Sequence[float], criterion: Criterion
) -> tuple[float, float]:
    """The ends of the axis of values. The part after the first rise, or fall, fills the picture."""
    seen = sorted(y for x, y in points if x >= climbed and math.isfinite(y)) or [0.0, float(criterion.scale)]
    every = [y for _, y in points if math.isfinite(y)] or seen
    cut = len(seen) // 50
    rises = criterion.better == "higher"
    low, high = (seen[cut], max(every)) if rises else (min(every), seen[-1 - cut])
    low = min([low, *goal])
    high = max([high, *goal])
    high = max(high, low + (1 if criterion.share else 0.01 * abs(low) or 1))
    margin = 0.05 * (high - low)
    return max(low - margin, 0) if low >= 0 else low - margin, high + margin


def smooth(values: Sequence[float]) -> list[float]:
    """Each value of a polynomial of degree 2 that is fitted to 10 neighbours (Savitzky and Golay, 1964).

    This is SciPy's filter as papers use it. Since its window is even, it evaluates the polynomial half an evaluation
    after each value, except for the five values at either end. Neighbours are successive evaluations, even if they are
    many rounds apart. Values that are not finite split the sequence. Parts of fewer than 10 values are not changed.
    """
    from scipy.signal import savgol_filter

    result: list[float] = []
    for finite, part in groupby(values, math.isfinite):
        piece = list(part)
        fits = finite and len(piece) >= WINDOW
        result += savgol_filter(piece, WINDOW, ORDER).tolist() if fits else piece
    return result
