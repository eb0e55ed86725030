"""Accuracy against rounds, time or client trips."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .picture import Axis, Line, Panel, Picture, Rule
from .smoothing import smooth
from .styles import QUIET, look

Models = Mapping[str, Mapping[int, float]]
"""Each model's accuracy, a share, by round: `records.accuracies`."""


def curves(
    models: Models,
    title: str = "Accuracy on the test set",
    *,
    target: float | None = None,
    broadcast_start: int | None = None,
    along: str = "round",
) -> Picture:
    """Every model's accuracy on the central test set: the model thin and light, its averages strong on top.

    `target`, a share, is a dotted line; `broadcast_start` marks the round from which on clients receive an average;
    `along` is what the rounds are called.
    """
    return Picture(title, [panel("accuracy", lines(models), target, broadcast_start, along)])


def lines(
    models: Models, averages: Sequence[str] = (), at: Mapping[int, float] | None = None, smoothed: bool = False
) -> list[Line]:
    """A line a model, in per cent, the model itself quiet and first; an average's begins where it leaves the model's.

    An average's style is that of its place among `averages` (by default those of these models). `at` has the x of each
    round where that is not the round itself; rounds that it has not are left out. `smoothed` lines can be smoothed.
    """
    averages = averages or [model for model in models if model != "model"]
    found = []
    for model in sorted(models, key=lambda model: model != "model"):
        points = models[model]
        style = QUIET if model == "model" else look(averages.index(model))
        begins = 0 if model == "model" else _leaves(points, models.get("model", {}))
        made = _line(model, points, at, smoothed)
        smooth = made.smooth and made.smooth[begins:]
        found.append(Line(model, made.x[begins:], made.y[begins:], style, smooth=smooth))
    return found


def _line(name: str, points: Mapping[int, float], at: Mapping[int, float] | None, smoothed: bool) -> Line:
    """All points of a model, in per cent."""
    known = {round: share for round, share in points.items() if at is None or round in at}
    x = list(known) if at is None else [at[round] for round in known]
    y = [100 * share for share in known.values()]
    return Line(name, x, y, look(0), smooth=smooth(y) if smoothed else None)


def panel(
    name: str,
    lines: Sequence[Line],
    target: float | None = None,
    broadcast_start: int | None = None,
    along: str = "round",
) -> Panel:
    """Lines of accuracies, with the target and the round from which on an average is fed.

    So that differences can be seen, the panel reaches down to where 98 % of the accuracies after the first fifth of the
    rounds lie: the first climb and the deepest dips come from below it.
    """
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True) if x is not None and y is not None]
    if not points:
        return Panel(name, Axis(along), Axis("accuracy (%)"), [], 9, 5)
    first, end = min(x for x, _ in points), max(x for x, _ in points)
    rules = []
    if target is not None:
        rules.append(Rule(100 * target, "y", f"target {100 * target:g} %", "dot"))
    if broadcast_start is not None and first <= broadcast_start <= end:
        rules.append(Rule(broadcast_start, "x", f"broadcasting from round {broadcast_start}"))
    margin = 0.01 * (end - first) or 0.5
    x = Axis(along, first - margin, end + margin, whole=True)
    y = Axis("accuracy (%)", *_reach(points, first + (end - first) / 5, target))
    return Panel(name, x, y, [*rules, *lines], 9, 5, ends=True)


def _leaves(points: Mapping[int, float], model: Mapping[int, float]) -> int:
    """The place of an average's last point before it leaves the model, which it is until it has begun.

    Zero if it never leaves it.
    """
    rounds = list(points)
    begun = next((i for i, round in enumerate(rounds) if points[round] != model.get(round)), 0)
    return max(begun - 1, 0)


def _reach(points: Sequence[tuple[float, float]], climbed: float, target: float | None) -> tuple[float, float]:
    """The ends of the axis of accuracies, such that the part after the first climb fills the picture."""
    goal = [] if target is None else [100 * target]
    seen = sorted(y for x, y in points if x >= climbed and math.isfinite(y)) or [0.0, 100.0]
    low = min([seen[len(seen) // 50], *goal])
    high = max([y for _, y in points if math.isfinite(y)] + goal + [low + 1])
    margin = 0.05 * (high - low)
    return max(low - margin, 0), high + margin
