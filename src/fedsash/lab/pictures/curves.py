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
    """Every model's accuracy on the central test set. The global model's line is thin; its averages are on top.

    `target`, a share in [0, 1], is a dotted line. `broadcast_start` marks the round from which clients receive an
    average. `along` is the label of the x axis.
    """
    return Picture(title, [panel("accuracy", lines(models), target, broadcast_start, along)])


def lines(
    models: Models, averages: Sequence[str] = (), at: Mapping[int, float] | None = None, smoothed: bool = False
) -> list[Line]:
    """One line for each model, in per cent. The global model is first and thin. An average's line begins where the
    average begins to differ from the global model.

    An average's style depends on its place among `averages` (by default those of these models). `at` has the x of each
    round, if x is not the round itself; rounds that it does not have are left out. `smoothed` lines can be smoothed.
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
    """Lines of accuracies, with the target and the round from which an average is broadcast.

    The axis begins below 98 % of the accuracies after the first fifth of the rounds, so that differences can be seen.
    The first rise and the deepest dips may lie below the panel.
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
    """The index of an average's last point that equals the global model. An average equals it until it begins.

    Zero if the two are equal at all points.
    """
    rounds = list(points)
    begun = next((i for i, round in enumerate(rounds) if points[round] != model.get(round)), 0)
    return max(begun - 1, 0)


def _reach(points: Sequence[tuple[float, float]], climbed: float, target: float | None) -> tuple[float, float]:
    """The ends of the axis of accuracies. The part after the first rise fills the picture."""
    goal = [] if target is None else [100 * target]
    seen = sorted(y for x, y in points if x >= climbed and math.isfinite(y)) or [0.0, 100.0]
    low = min([seen[len(seen) // 50], *goal])
    high = max([y for _, y in points if math.isfinite(y)] + goal + [low + 1])
    margin = 0.05 * (high - low)
    return max(low - margin, 0), high + margin
