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
CLIPPED = 50
"""One of so many values, the worst, may lie outside of a panel."""

BEYOND = "The axis leaves out some values, mostly of the first steps, so that differences can be seen."


def curves(
    values: Curves,
    title: str = "",
    *,
    forked: int | None = None,
    broadcast_start: int | None = None,
    along: str = "round",
) -> Picture:
    """Every model's values by round. The global model's line is thin; its averages are on top.

    The target is a dotted line. Two rounds are marked: that at which the run was `forked` from another one, and
    `broadcast_start`, from which clients receive an average. `along` is the label of the x axis.
    """
    criterion = values.criterion
    marked = turns(forked, broadcast_start)
    drawn = panel(criterion.name, lines(values), criterion, criterion.target, marked, along)
    below = beyond([drawn])
    return Picture(title or capital(values.title), [drawn], caption=" ".join(below), below=below)


def turns(forked: int | None, broadcast_start: int | None) -> dict[int, str]:
    """What changes for a run's clients after a round, in words, by round."""
    marked: dict[int, str] = {}
    if broadcast_start is not None:
        marked[broadcast_start] = f"broadcasting from round {broadcast_start}"
    if forked is not None:
        marked[forked] = f"forked at round {forked}"
    if forked is not None and broadcast_start in (forked, forked + 1):  # two lines could not be told apart
        return {forked: f"forked at round {forked}, broadcasting from {broadcast_start}"}
    return marked


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def lines(
    values: Curves, averages: Sequence[str] = (), at: Mapping[int, float] | None = None, smoothed: bool = False
) -> list[Line]:
    """One line for each model; shares are in per cent. The global model is first and thin. An average's line begins
    where the average begins to differ from the global model.

    An average's style depends on its place among `averages` (by default those of these models). `at` has the x of each
    round, if x is not the round itself; rounds that it does not have are left out. `smoothed` lines can be smoothed.
    """
    models = values.models
    averages = averages or [model for model in models if model != "model"]
    lines = []
    for model in sorted(models, key=lambda model: model != "model"):
        points = models[model]
        if at is not None:
            points = {round: value for round, value in points.items() if round in at}
        style = QUIET
        begin = 0
        if model != "model":
            style = look(averages.index(model))
            begin = _last_equal(points, models.get("model", {}))
        x: list[float] = list(points)
        if at is not None:
            x = [at[round] for round in points]
        y = [values.criterion.scale * value for value in points.values()]
        # Smoothed before it is cut: the filter also takes the points before an average begins.
        smooth_y = smooth(y)[begin:] if smoothed else None
        lines.append(Line(model, x[begin:], y[begin:], style, smooth=smooth_y))
    return lines


def panel(
    name: str,
    lines: Sequence[Line],
    criterion: Criterion,
    target: float | None = None,
    turns: Mapping[int, str] | None = None,
    along: str = "round",
) -> Panel:
    """Lines of the criterion, with a target and a note at each of the rounds `turns`.

    The axis ends beyond 98 % of the values after the first fifth of the rounds, so that differences can be seen. The
    first steps and the deepest dips may lie outside of the panel.
    """
    label = criterion.label()
    points = []
    for line in lines:
        if not line.shown:
            continue
        for x, y in zip(line.x, line.y, strict=True):
            if x is not None and y is not None:
                points.append((x, y))
    if not points:
        return Panel(name, Axis(along), Axis(label), [], 9, 5)
    first = min(x for x, _ in points)
    end = max(x for x, _ in points)
    rules = []
    target_y = None
    if target is not None:
        target_y = criterion.scale * target
        rules.append(Rule(target_y, "y", f"target {criterion.plain(target)}", "dot"))
    for round, note in (turns or {}).items():
        if first <= round <= end:
            rules.append(Rule(round, "x", note))
    margin = 0.01 * (end - first) or 0.5
    climbed = first + (end - first) / 5
    low, high = _ends_of_values(points, climbed, target_y, criterion)
    x_axis = Axis(along, first - margin, end + margin, whole=True)
    return Panel(name, x_axis, Axis(label, low, high), [*rules, *lines], 9, 5, ends=True)


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


def _last_equal(points: Mapping[int, float], model: Mapping[int, float]) -> int:
    """The index of an average's last point that equals the global model. An average equals it until it begins.

    Zero if the two are equal at all points.
    """
    for i, (round, value) in enumerate(points.items()):
        if value != model.get(round):
            return max(i - 1, 0)
    return 0


def _ends_of_values(
    points: Sequence[tuple[float, float]], climbed: float, target: float | None, criterion: Criterion
) -> tuple[float, float]:
    """The ends of the axis of values. The part from x = `climbed` on, after the first rise or fall, fills the picture.

    `points` are (x, y), and `target`, if there is one, lies within the ends.
    """
    late = sorted(y for x, y in points if x >= climbed and math.isfinite(y))
    if not late:
        late = [0.0, float(criterion.scale)]
    finite = [y for _, y in points if math.isfinite(y)] or late
    clipped = len(late) // CLIPPED
    if criterion.better == "higher":
        low = late[clipped]
        high = max(finite)
    else:
        low = min(finite)
        high = late[-1 - clipped]
    if target is not None:
        low = min(low, target)
        high = max(high, target)
    # Equal values would leave the axis no length: it is at least 1 % long.
    shortest = 1.0 if criterion.share else 0.01 * abs(low) or 1.0
    high = max(high, low + shortest)
    margin = 0.05 * (high - low)
    bottom = low - margin
    if low >= 0:
        bottom = max(bottom, 0)
    return bottom, high + margin


def smooth(values: Sequence[float]) -> list[float]:
    """Each value of a polynomial of degree 2 that is fitted to 10 neighbours (Savitzky and Golay, 1964).

    This is SciPy's filter as papers use it. Since its window is even, it evaluates the polynomial half an evaluation
    after each value, except for the five values at either end. Neighbours are successive evaluations, even if they are
    many rounds apart. Values that are not finite split the sequence. Parts of fewer than 10 values are not changed.
    """
    from scipy.signal import savgol_filter

    smoothed: list[float] = []
    for finite, group in groupby(values, math.isfinite):
        part = list(group)
        if finite and len(part) >= WINDOW:
            part = savgol_filter(part, WINDOW, ORDER).tolist()
        smoothed += part
    return smoothed
