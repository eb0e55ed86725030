"""Numbers along lines: each reduction against the closed form, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan, log2

import numpy as np
import pytest

from fedsash.lab.papers.lines import (
    along,
    ascending,
    correlation,
    curvature_at,
    height_at,
    inner_depth,
    log_slope,
    lowest_at,
    order_slope,
    slope,
    slope_at,
    trend,
    unsteadiness,
    value_at,
)
from fedsash.lab.papers.numbers import Numbers
from fedsash.settings.errors import SettingError

PLACES = np.linspace(-0.5, 1.5, 21).tolist()
Reduction = Callable[[Sequence[float], Sequence[float]], float]


def parabola(bottom: float, factor: float = 3.0) -> list[float]:
    return [2 + factor * (place - bottom) ** 2 for place in PLACES]


@pytest.mark.parametrize(
    "reduction, expected",
    [
        (lowest_at, 0.7),
        (curvature_at(1), 6.0),
        (slope_at(0), -4.2),
        (slope_at(1), 1.8),
        (height_at(0), 3 * 0.49),
        (value_at(1), 2.27),
        (inner_depth, 3 * 0.09),
    ],
)
def test_a_parabola(reduction: Reduction, expected: float) -> None:
    assert reduction(PLACES, parabola(0.7)) == pytest.approx(expected)


def test_no_lower_point_within() -> None:
    assert inner_depth(PLACES, parabola(1.4)) < 0
    assert inner_depth([0, 0.5, 1], [1, 3, 2]) == -2


def test_several_lowest_places_have_their_middle() -> None:
    assert lowest_at([0, 0.5, 1, 1.5], [3, 1, 1, 1]) == 1


@pytest.mark.parametrize("values", [[np.nan, 1.0, 2.0], [2.0, np.nan, 1.0], [np.inf, 1.0, 2.0]])
def test_a_value_that_is_no_number_has_no_lowest_place(values: list[float]) -> None:
    assert isnan(lowest_at([-0.5, 0, 1], values))


def test_two_points_have_no_correlation() -> None:
    assert isnan(correlation([1, 2], [3, 4]))
    assert correlation([1, 2, 3], [3, 4, 5]) == pytest.approx(1)


@pytest.mark.parametrize(
    "reduction, expected",
    [(slope, 2.0), (trend, 2.0 * 7), (order_slope, 14 / 3), (unsteadiness, np.std([2, 4, 8], ddof=1))],
)
def test_a_straight_line(reduction: Reduction, expected: float) -> None:
    places = [1, 2, 4, 8]
    by_order = [0, 14 / 3, 28 / 3, 14] if reduction is order_slope else [2 * place for place in places]
    assert reduction(places, by_order) == pytest.approx(expected)


def test_the_slope_over_the_logarithm_is_the_change_by_doubling() -> None:
    places = [0.05, 0.1, 0.2, 0.4]
    assert log_slope(places, [5 - 1.5 * log2(place) for place in places]) == pytest.approx(-1.5)


def test_a_coarse_line_has_no_derivatives() -> None:
    places, values = [0, 0.5, 1], [1, 2, 3]
    assert isnan(curvature_at(0.5)(places, values)) and isnan(slope_at(0.5)(places, values))


def test_two_points_are_no_trend_and_two_rounds_no_spread() -> None:
    assert all(isnan(reduction([1, 2], [3, 4])) for reduction in (slope, trend, order_slope, log_slope, unsteadiness))


def test_each_seed_is_reduced_by_itself_in_the_labels_order() -> None:
    values = {("b", "0.4"): [1, 5], ("b", "0.05"): [3, 1], ("b", "0.1"): [2, 2], ("a", "1"): [7, 8]}
    seen: list[tuple[list[float], list[float]]] = []

    def first(places: Sequence[float], values: Sequence[float]) -> float:
        seen.append((list(places), list(values)))
        return values[0]

    found = along(Numbers.measured(("method", "share"), values), "share", first)
    assert found.dims == ("method",)
    assert {key: quantity.values for key, quantity in found.items()} == {("b",): (3, 1), ("a",): (7, 8)}
    assert seen[:2] == [([0.05, 0.1, 0.4], [3, 2, 1]), ([0.05, 0.1, 0.4], [1, 2, 5])]


def test_seeds_that_a_place_lacks_do_not_count() -> None:
    numbers = Numbers.measured(("share",), {(1.0,): {"0": 1, "1": 2}, (2.0,): {"1": 5, "2": 6}})
    assert along(numbers, "share", lambda places, values: sum(values))[()].values == (7,)


def test_ascending_keeps_the_numbers() -> None:
    numbers = Numbers.exact(("start", "P"), {("300", "5"): 1, ("150", "5"): 2, ("200", "3"): 3})
    found = ascending(numbers, "start")
    assert found.labels("start") == ["150", "200", "300"]
    assert {**found} == {**numbers}


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(SettingError, match=r"along.*must be one of share"):
        along(Numbers.exact(("share",), {(1.0,): 1.0}), "beta", slope)
