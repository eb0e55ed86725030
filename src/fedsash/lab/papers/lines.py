"""What is judged of numbers along a line: slopes, lowest places, heights and curvatures, in each seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import correlation as pearson
from statistics import fmean, linear_regression, stdev

import numpy as np

from ...settings.errors import check
from .numbers import Key, Numbers, Quantity, reduced

REACH = 0.25
"""How far to both sides of a place derivatives look, where the two models of a line are 1 apart."""
ROUNDING = 1e-9
"""How far a place on a line may be from the number that is meant."""


def along(numbers: Numbers, dim: str, function: Callable[[Sequence[float], Sequence[float]], float]) -> Numbers:
    """One number for those along a dimension whose labels are numbers: in each seed `function(labels, values)`.

    Labels ascend, whatever their order in `numbers`. A label may also be the text of a number, such as "0.05".
    """
    check(dim in numbers.dims, "along", dim, f"must be one of {', '.join(numbers.dims)}")
    place = numbers.dims.index(dim)
    lines: dict[Key, dict[float, Quantity]] = {}
    for key, quantity in numbers.items():
        line = (*key[:place], *key[place + 1 :])
        lines.setdefault(line, {})[float(key[place])] = quantity
    results: dict[Key, Quantity] = {}
    for line, by_label in lines.items():
        labels = sorted(by_label)
        result = reduced([by_label[label] for label in labels], partial(function, labels))
        if result is not None:
            results[line] = result
    return Numbers([each for each in numbers.dims if each != dim], results)


def together(dim: str, function: Callable[..., float], *several: Numbers) -> Numbers:
    """One number of several series along a dimension: in each seed `function` of them, such as their `correlation`.

    All have the same dimensions. Only the labels and the seeds that all of them have count.
    """
    first = several[0]
    count = len(several)
    place = first.dims.index(dim)
    lines: dict[Key, list[Key]] = {}
    for key in first:
        if all(key in other for other in several):
            line = (*key[:place], *key[place + 1 :])
            lines.setdefault(line, []).append(key)

    def of_series(values: Sequence[float]) -> float:
        """`function` of the series that stand in `values` one after another, all of the same length."""
        length = len(values) // count
        series = [values[length * i : length * (i + 1)] for i in range(count)]
        return function(*series)

    results = {}
    for line, keys in lines.items():
        quantities = [numbers[key] for numbers in several for key in keys]
        result = reduced(quantities, of_series)
        if result is not None:
            results[line] = result
    return Numbers([each for each in first.dims if each != dim], results)


def slope(places: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the straight line that fits the values best; two places say nothing of a trend."""
    return linear_regression(places, values).slope if len(set(places)) > 2 else math.nan


def order_slope(places: Sequence[float], values: Sequence[float]) -> float:
    """The slope over the places' order: the change from one to the next."""
    return slope(range(len(places)), values)


def log_slope(places: Sequence[float], values: Sequence[float]) -> float:
    """The slope over the logarithm: the change from a place to one twice as large."""
    return slope([math.log2(place) for place in places], values)


def trend(places: Sequence[float], values: Sequence[float]) -> float:
    """How much the straight line that fits best rises from the first place to the last."""
    return slope(places, values) * (places[-1] - places[0])


def lowest_at(places: Sequence[float], values: Sequence[float]) -> float:
    """Where the values are lowest: of several such places the middle one. Not a number if one of the values is none."""
    if not all(map(math.isfinite, values)):
        return math.nan
    lowest = min(values)
    return fmean(place for place, value in zip(places, values, strict=True) if value == lowest)


def inner_depth(places: Sequence[float], values: Sequence[float]) -> float:
    """How far the lowest value between 0 and 1 lies below those at 0 and 1; negative if it lies above one of them."""
    within = [value for place, value in zip(places, values, strict=True) if -ROUNDING <= place <= 1 + ROUNDING]
    return min(within[0], within[-1]) - min(within[1:-1])


def curvature_at(place: float) -> Callable[[Sequence[float], Sequence[float]], float]:
    """The second derivative at a place, of the parabola that fits the values within `REACH` of it best."""
    return lambda places, values: 2 * _parabola(place, places, values)[0]


def slope_at(place: float) -> Callable[[Sequence[float], Sequence[float]], float]:
    """The first derivative at a place, of the parabola that fits the values within `REACH` of it best."""
    return lambda places, values: _parabola(place, places, values)[1]


def _parabola(place: float, places: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The parabola's coefficients of (x - place)^2 and x - place; no numbers if fewer than three places are near."""
    x = []
    y = []
    for each, value in zip(places, values, strict=True):
        if abs(each - place) <= REACH + ROUNDING:
            x.append(each - place)
            y.append(value)
    if len(x) < 3:
        return math.nan, math.nan
    square, linear, _ = np.polyfit(x, y, 2)
    return float(square), float(linear)


def height_at(place: float) -> Callable[[Sequence[float], Sequence[float]], float]:
    """How far a place lies above the lowest value."""
    return lambda places, values: float(np.interp(place, places, values)) - min(values)


def value_at(place: float) -> Callable[[Sequence[float], Sequence[float]], float]:
    """The value at a place."""
    return lambda places, values: float(np.interp(place, places, values))


def unsteadiness(rounds: Sequence[float], values: Sequence[float]) -> float:
    """The standard deviation of the changes from round to round."""
    changes = np.diff(values)
    return stdev(changes.tolist()) if len(changes) > 1 else math.nan


def ascending(numbers: Numbers, dim: str) -> Numbers:
    """The same numbers in the order of a dimension's labels, which are numbers, as a judgement from one to the next
    takes them."""
    place = numbers.dims.index(dim)
    keys = sorted(numbers, key=lambda key: float(key[place]))
    return Numbers(numbers.dims, {key: numbers[key] for key in keys})


def correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's correlation; not a number of fewer than three points, since two always lie on a line, or if x or y does
    not vary."""
    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return math.nan
    return pearson(x, y)
