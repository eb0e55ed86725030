"""The statistics of the findings: differences paired by seed, over several settings and many methods; their picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedsash.runs.pictures import Axis, Line, Panel, Picture, Rule, look
from fedsash.vector.arrays import Floats


@dataclass(frozen=True)
class Gain:
    """A mean difference with its 95 % interval, `mean ± half`, and the p-value of Student's t for a mean of 0."""

    mean: float
    half: float
    p: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.half:.2f}"


def gain(differences: Sequence[Floats]) -> Gain:
    """The mean over S settings of their mean differences, `[n]` for each: n seeds, drawn anew in each setting.

    With s_j the sample deviation of setting j, the standard error is sqrt(sum_j s_j^2/n_j) / S, and the degrees of
    freedom are Welch and Satterthwaite's: (sum_j v_j)^2 / sum_j v_j^2/(n_j - 1) with v_j = s_j^2/n_j. If nothing
    varies, the interval is a point, and p is 1 for no difference and otherwise 0.
    """
    mean = float(np.mean([each.mean() for each in differences]))
    v = np.array([each.var(ddof=1) / len(each) for each in differences])
    if not v.any():
        return Gain(mean, 0.0, float(mean == 0))
    error = float(np.sqrt(v.sum()) / len(v))
    freedom = v.sum() ** 2 / sum(v_j**2 / (len(each) - 1) for v_j, each in zip(v, differences, strict=True))
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Gain(mean, half, float(2 * stats.t.sf(abs(mean) / error, freedom)))


def holm(p: Sequence[float]) -> list[float]:
    """The p-values corrected for their number (Holm 1979): the k-th smallest of m times m - k + 1, made ascending."""
    order = np.argsort(p)
    factors = np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(np.minimum(np.asarray(p)[order] * factors, 1))
    return [float(value) for value in corrected]


def picture(title: str, places: Sequence[str], rows: Mapping[str, Sequence[Gain]]) -> Picture:
    """Each row's gains, one for each place, with their intervals."""
    ticks = {i: "\n" * (i % 2 * (len(places) > 10)) + name for i, name in enumerate(places)}  # many stand in two lines
    layers: list[Line | Rule] = [Rule(0, "y")]
    for k, (name, gains) in enumerate(rows.items()):
        x = []
        y = []
        half = []
        for i, each in enumerate(gains):  # a gap after each, since places have no order
            x = [*x, i + 0.14 * k, None]
            y = [*y, each.mean, None]
            half = [*half, each.half, None]
        layers.append(Line(name, x, y, look(k), half))
    axes = Axis(low=-0.4, high=len(places) - 0.2, ticks=ticks), Axis("points of accuracy")
    panel = Panel("differences of accuracy", *axes, layers, width=9.0, height=4.5)
    return Picture(title, [panel], caption="Means and 95 % intervals, paired by seed.")
