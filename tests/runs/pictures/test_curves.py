"""Curves: where an average begins, which part fills the picture, and that every history has one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsash.evaluation import Curves
from fedsash.evaluation.history import Models
from fedsash.runs.pictures import Line, Panel, Rule
from fedsash.runs.pictures.curves import BEYOND, ORDER, WINDOW, curves, lines, smooth
from fedsash.runs.pictures.paper import draw
from fedsash.tasks import Criterion
from support.by_default import rotated, some
from support.histories import ACCURACY, NO_TEST, RMSE, history, history_of


def drawn(panel: Panel) -> dict[str, Line]:
    return {layer.name: layer for layer in panel.layers if isinstance(layer, Line)}


def found(models: Models, criterion: Criterion = ACCURACY) -> Curves:
    return Curves(criterion, "test", models)


def of(models: dict[str, list[float | None]]) -> Curves:
    return history_of(history(models)).curves(ACCURACY)


def test_lines_of_a_share_are_in_per_cent_the_model_first_and_quiet() -> None:
    (panel,) = curves(of({"window20": [0.1, 0.6, 0.7], "model": [0.2, 0.5, None]})).panels
    of_panel = drawn(panel)
    assert list(of_panel) == ["model", "window20"] and panel.y.label == "accuracy (%)"
    assert of_panel["window20"].x == [10, 20, 30] and of_panel["window20"].y == pytest.approx([10, 60, 70])
    assert of_panel["model"].y[:2] == pytest.approx([20, 50]) and math.isnan(of_panel["model"].y[2] or 0)
    assert [line.style.quiet for line in of_panel.values()] == [True, False]


def test_lines_of_another_number_are_as_they_are() -> None:
    picture = curves(found({"model": {1: 12.5, 2: 7.0}}, RMSE))
    (panel,) = picture.panels
    assert picture.title == "Rmse on the test set" and panel.y.label == "rmse"
    assert drawn(panel)["model"].y == [12.5, 7.0]


def test_an_average_begins_where_it_leaves_the_model() -> None:
    model = {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}

    def rounds(average: dict[int, float], **others: dict[int, float]) -> list[Any]:
        return list(lines(found({"a": average, **others}))[-1].x)

    assert rounds({1: 0.1, 2: 0.2, 3: 0.35, 4: 0.4}, model=model) == [2, 3, 4]
    assert rounds({1: 0.0, 2: 0.2}, model=model) == [1, 2]
    assert rounds({4: 0.5}) == [4]
    assert rounds(model, model=model) == [1, 2, 3, 4], "a window of one model is the model"


def test_a_line_that_begins_late_is_smoothed_with_what_came_before() -> None:
    model = {t: (7 * t % 10) / 10 for t in range(40)}
    average = model | {t: 0.5 + t / 1000 for t in range(20, 40)}
    line = lines(found({"model": model, "a": average}), smoothed=True)[1]
    assert list(line.x) == list(range(19, 40))
    assert line.smooth == pytest.approx(smooth([100 * share for share in average.values()])[19:])


def test_a_line_against_time_leaves_out_rounds_without_one() -> None:
    (line,) = lines(found({"a": {1: 0.1, 2: 0.2, 3: 0.3}}), at={1: 0.5, 3: 4.0})
    assert list(line.x) == [0.5, 4.0] and line.y == pytest.approx([10, 30])
    model = {10: 0.1, 20: 0.2, 30: 0.3, 40: 0.4}
    line = lines(found({"model": model, "a": model | {40: 0.5}}), at={30: 3.0, 40: 4.0})[1]
    assert list(line.x) == [3.0, 4.0] and line.y == pytest.approx([30, 50])


def test_target_and_the_beginning_of_the_broadcast_are_marked_where_they_can_be_seen() -> None:
    models = of({"model": [0.1, 0.5, 0.6]})
    (panel,) = curves(replace(models, criterion=Criterion(target=0.75)), broadcast_start=20).panels
    rules = [(rule.at, rule.axis, rule.note) for rule in panel.layers if isinstance(rule, Rule)]
    assert rules == [(75, "y", "target 75 %"), (20, "x", "broadcasting from round 20")]
    assert panel.y.high is not None and panel.y.high > 75
    (panel,) = curves(replace(models, criterion=Criterion(target=None)), broadcast_start=31).panels
    assert not [rule for rule in panel.layers if isinstance(rule, Rule)]


def test_a_target_that_is_no_share_is_marked_as_it_is() -> None:
    (panel,) = curves(found({"model": {1: 12.0, 2: 7.0}}, replace(RMSE, target=2.5))).panels
    assert [(rule.at, rule.note) for rule in panel.layers if isinstance(rule, Rule)] == [(2.5, "target 2.5")]
    assert panel.y.low is not None and 0 <= panel.y.low < 2.5


def test_the_part_after_the_first_climb_fills_the_panel() -> None:
    climb, flat = [i / 40 for i in range(20)], [0.8, 0.82] * 90
    (panel,) = curves(of({"model": [*climb, *flat]})).panels
    assert panel.y.low is not None and 70 < panel.y.low < 80
    assert panel.y.high is not None and 82 < panel.y.high < 83
    (panel,) = curves(of({"model": [*climb, *flat, 0.0]})).panels
    assert panel.y.low is not None and panel.y.low > 70, "a single dip comes from below"


def test_the_part_after_the_first_fall_fills_the_panel_of_what_should_be_low() -> None:
    fall, flat = [1000.0 / i for i in range(1, 20)], [3.0, 3.2] * 90
    values = dict(enumerate([*fall, *flat, 500.0]))
    (panel,) = curves(found({"model": values}, RMSE)).panels
    assert panel.y.low is not None and 2.9 < panel.y.low < 3
    assert panel.y.high is not None and 3.2 < panel.y.high < 4, "a single jump comes from above"


def test_numbers_below_zero_have_room() -> None:
    (panel,) = curves(found({"model": {1: -3.0, 2: -1.0}}, Criterion("r2", "higher", share=False, target=None))).panels
    assert panel.y.low is not None and panel.y.low < -1 and panel.y.high is not None and panel.y.high > -1


ODD: dict[str, Any] = {
    "nothing": [],
    "no test set": NO_TEST,
    "one evaluation": history({"model": [0.5], "w": [0.6]}),
    "NaN": history({"model": [math.nan, 0.5, None], "w": [None, None, None]}),
    "infinite": history({"model": [math.inf, 0.5], "w": [-math.inf, math.inf]}),
    "only NaN": history({"model": [math.nan]}),
    "all wrong": history({"model": [0.0, 0.0]}),
    "all right": history({"model": [1.0, 1.0]}),
    "huge": history({"model": [1e300, -1e300]}),
    "twenty averages": history({f"window{i}": [0.5 + i / 100, 0.6] for i in range(20)}),
    "names that look like formulas": history({"$x_1": [0.1, 0.2], "a_b$ $": [0.1, 0.2], "": [0.3, 0.3]}),
}


@pytest.mark.parametrize(
    "name, share", some(rotated(ODD, [True, False]), "nothing", "NaN", "infinite", "names that look like formulas")
)
def test_there_is_a_picture_of_everything(name: str, share: bool, tmp_path: Path) -> None:
    criterion = Criterion("accuracy", "higher" if share else "lower", share, 0.95)
    draw(curves(history_of(ODD[name]).curves(criterion), "$5 & <b>", broadcast_start=15), tmp_path / "curves.png")
    assert [p.name for p in tmp_path.iterdir()] == ["curves.png"]


def test_smoothing_fits_parabolas_and_keeps_what_is_too_short() -> None:
    """A filter of order 2 fits a parabola exactly; an even window gives it half a step on, but at the ends."""

    def parabola(t: float) -> float:
        return 0.1 + 0.02 * t - 0.001 * t * t

    n, few = WINDOW + 5, [0.0, 1.0, 0.0]
    fitted = [parabola(t + (0.5 if 5 <= t < n - 5 else 0)) for t in range(n)]
    smoothed = smooth([*(parabola(t) for t in range(n)), math.nan, *few])
    assert ORDER == 2 and smoothed[:n] == pytest.approx(fitted, abs=1e-12)
    assert math.isnan(smoothed[n]) and smoothed[n + 1 :] == few


def test_a_picture_says_that_its_axis_leaves_out_the_first_steps_where_it_does() -> None:
    climbing = {t: min(0.1 * t, 0.8 + 0.001 * t) for t in range(1, 41)}
    picture = curves(found({"model": climbing}))
    assert picture.caption == BEYOND and picture.below == [BEYOND]
    whole = curves(found({"model": dict.fromkeys(range(1, 41), 0.5)}))
    assert whole.caption == "" and whole.below == []
