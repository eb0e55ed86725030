"""Pictures of what studies found: that they show its numbers, on scales that they have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from fedsash.lab.studies import kinds, pictures
from fedsash.runs.pictures import Bars, Field, Line, Panel, Picture, Points, Rule
from fedsash.runs.pictures.page import plotly
from fedsash.runs.pictures.paper import draw
from support.by_default import full, some
from support.histories import ACCURACY

pytestmark = pytest.mark.pictures

Kind = TypeVar("Kind")

AXIS = [-1.0, 0.0, 1.0]
GRID = [[2.0, 1.0, 2.5], [1.5, 0.5, 1.0], [None, 1.0, 9.0]]
ERROR = [[0.5, 0.25, 0.5], [0.5, 0.125, 0.5], [None, 0.5, 0.9]]
METRIC = {"split": "test", "metric": asdict(ACCURACY)}
TERRAIN = {"x": AXIS, "y": AXIS, "loss": GRID, "error": ERROR, **METRIC}
FOUND: dict[str, dict[str, Any]] = {
    "line": {"models": ["a_$1", "b"], "beta": AXIS, "loss": [1.0, None, 2.0], "error": [0, 0.2, 1], **METRIC},
    "plane": {**TERRAIN, "models": {"a_$1": [0, 0], "b": [1, 0], "c": [0, 1]}, "mean": [0.33, 0.33]},
    "surface": {**TERRAIN, "model": "model", "seed": 0},
    "decomposition": {
        "rounds": [10],
        **{name: [0.5] for name in ("squared_error", "train_bias", "heterogeneous_bias", "test_error")},
        **{name: [None] for name in ("variance", "covariance", "cka")},
        **{name: [2.0] for name in ("locality_max", "locality_mean")},
    },
    "ensemble": {
        "split": "test", "rounds": [10, 20], "cka": [0.5, None],
        "mean": [[0.5, 0.4], [0.3]], "ensemble": [[0.5, 0.3], [0.3]],
        "gap": [[0.0, 0.1], [0.0]], "distance": [[0.0, 2.0], [0.0]],
    },
    "variance": {
        "rounds": [10, 20], "ids": [[4, 7], [2]], "variances": [[0.1, 0.3], [0.2]], "distances": [[0.5, 1.0], [0.0]],
        "correlation": [1.0, None],
        **{name: [[0.5, 0.4], [0.3]] for name in ("squared_error", "bias")},
        **{name: [[0.2, 0.1], [0.2]] for name in ("variance", "equal")},
        **{name: [[0.0, 0.05], [0.0]] for name in ("covariance", "bound")},
    },
    "coverage": {
        "sizes": [1, 2], "rounds": [1, 2, 3], "expected": [0.5, 0.75],
        "share": [[0.5, 0.5, 0.5], [0.5, 0.5, 1.0]], "distance": [[0.2, 0.2, 0.2], [0.2, 0.2, 0.0]],
    },
    "flatness": {
        "split": "train",
        "models": {
            name: {"eigenvalues": [9.0, -1.0], "converged": 2, "sharpness": {"0.05": 0.1}} for name in ("model", "w")
        },
    },
    "window": {
        "average": "w", "round": 2,
        "rounds": [1, 2], "weights": [1.0, 0.5], "clients": [0.0, 1.5], "distance_rounds": [1, 2], "distances": [1, 1],
    },
    "averages": {
        "round": 6, "model": 0.5, "sizes": [2, 4], "chosen": 4, **METRIC,
        "windows": {"value": [0.5, 0.6], "loss": [1.0, None], "held_out": [0.5, 0.7]},
        "emas": {"decay": [1 / 3, 0.6], "error": [0.3, 0.2], "value": [0.5, 0.5], "loss": [1.0, 1.0]},
    },
    "map": {
        "ends": [2, 4], "sizes": [[2], [2, 4]], "value": [[0.5], [None, 0.7]], "model": [0.25, None], **METRIC,
    },
    "bound": {
        "trips": [1, 2], "squared_norms": [4.0, 1.0], "mean": [4.0, 2.5],
        "terms": {"start": [3.0, 1.5], "local": [0.5, 0.5], "window": [0.25, 0.25]},
    },
}  # fmt: skip


def found(kind: str, **changes: Any) -> dict[str, Any]:
    title = "runs/a_$1: what it is"
    content: dict[str, Any] = json.loads(json.dumps({"kind": kind, "title": title, **FOUND[kind], **changes}))
    return content


def picture(kind: str, **changes: Any) -> Picture:
    (drawn,) = pictures([found(kind, **changes)])
    return drawn


def of(panel: Panel, kind: type[Kind]) -> list[Kind]:
    return [layer for layer in panel.layers if isinstance(layer, kind)]


def values(line: Line) -> Sequence[float | None]:
    return [None if y is None else pytest.approx(y) for y in line.y]


def test_every_kind_is_tried_here() -> None:
    assert set(FOUND) == set(kinds())


@pytest.mark.parametrize("ending", ["png", pytest.param("pdf", marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", some(FOUND, "line", "plane", "bound"))
def test_every_kind_is_drawn_for_papers_and_on_the_page(kind: str, ending: str, tmp_path: Path) -> None:
    draw(picture(kind), tmp_path / f"x.{ending}")
    assert {path.name for path in tmp_path.iterdir()} == {f"x.{ending}"}
    assert [view["label"] for view in plotly(picture(kind))["views"]] == [panel.name for panel in picture(kind).panels]
    assert picture(kind).caption.endswith(".") and picture(kind).title == found(kind)["title"]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("ensemble", {"mean": [[0.5, None], [0.3]], "gap": [[0.0, None], [0.0]]}),
        ("variance", {"squared_error": [[0.5, None], [0.3]], "covariance": [[0.0, None], [0.0]]}),
        ("bound", {"mean": [4.0, None], "terms": {"start": [3.0, 1.5], "local": [0.5, None], "window": [0.25, 0.25]}}),
    ],
)
def test_a_number_that_is_not_finite_is_a_gap(kind: str, changes: dict[str, Any]) -> None:
    assert plotly(picture(kind, **changes))["views"] and list(kinds()[kind].study().table(found(kind, **changes)))


def test_an_error_of_0_has_its_place_beside_the_similarity() -> None:
    _, similar, apart = picture("ensemble", cka=[0.5, 0.7], mean=[[0.5, 0.0], [0.3]]).panels
    (points,) = of(similar, Points)
    assert list(zip(points.names, points.x, points.y, strict=True)) == [("10", 0.5, 0.0), ("20", 0.7, 30.0)]
    assert [list(points.names) for points in of(apart, Points)] == [["10"]], "0 has none on a logarithmic axis"


def test_a_line_shows_loss_and_error_between_its_models() -> None:
    loss, error = picture("line").panels
    assert [values(line) for panel in (loss, error) for line in of(panel, Line)] == [[1, None, 2], [0, 20, 100]]
    assert [(rule.at, rule.note) for rule in of(loss, Rule)] == [(1, "a_$1"), (0, "b")]
    assert of(error, Line)[0].x == AXIS


def test_a_plane_shows_its_grids_its_models_and_their_mean() -> None:
    loss, error = picture("plane").panels
    assert of(loss, Field)[0].values == GRID and loss.square
    assert of(error, Field)[0].values == [[None if e is None else 100 * e for e in row] for row in ERROR]
    models, mean = of(loss, Points)
    assert list(zip(models.names, models.x, models.y, strict=True)) == [("a_$1", 0, 0), ("b", 1, 0), ("c", 0, 1)]
    assert (mean.symbol, mean.x, mean.y) == ("cross", [0.33], [0.33])


@pytest.mark.parametrize("factor, square", [(0.1, False), (0.5, True), (2, True), (10, False)])
def test_a_plane_has_one_unit_unless_that_would_leave_no_more_than_a_strip(factor: float, square: bool) -> None:
    assert all(panel.square == square for panel in picture("plane", y=[factor * y for y in AXIS]).panels)


def test_a_surface_is_a_relief_and_contours_of_the_same_numbers() -> None:
    panels = picture("surface").panels
    fields = [of(panel, Field)[0] for panel in panels]
    assert [field.relief for field in fields] == [True, True, False, False]
    assert fields[0].values == fields[2].values == GRID and fields[1].values == fields[3].values


def test_a_decomposition_shows_what_is_known() -> None:
    parts, distances, likeness, wrong = picture("decomposition").panels
    names = ["squared error", "train bias", "heterogeneous bias"]
    assert [line.name for line in of(parts, Line)] == names
    assert [values(line) for line in of(distances, Line)] == [[2], [2]] and likeness.layers == []
    assert [values(line) for line in of(wrong, Line)] == [[50]], "in per cent"
    (several, *_) = picture("decomposition", variance=[0.1], covariance=[0.2], bias=[0.2]).panels
    assert {line.name for line in of(several, Line)} > {"squared bias", "variance", "covariance"}


def test_flatness_has_a_bar_for_each_model_and_number() -> None:
    eigenvalues, sharpness = (of(panel, Bars)[0] for panel in picture("flatness").panels)
    assert eigenvalues.names == sharpness.names == ["model", "w"]
    assert eigenvalues.heights == [[9, -1], [9, -1]] and sharpness.heights == [[0.1], [0.1]]


def test_a_window_shows_weights_of_rounds_and_of_clients_and_distances() -> None:
    rounds, clients, away = picture("window").panels
    assert values(of(rounds, Line)[0]) == [1, 0.5] and values(of(away, Line)[0]) == [1, 1]
    assert of(clients, Bars)[0].heights == [[1.5, 0]], "the largest first"


def test_a_map_has_a_row_for_each_size_and_a_curve_for_the_best_window_at_the_last_end() -> None:
    every, curve = picture("map").panels
    (field,) = of(every, Field)
    assert (list(field.x), list(field.y)) == ([2, 4], [2, 4])
    assert [list(row) for row in field.values] == [[50, None], [None, pytest.approx(70)]]
    assert [(list(points.x), list(points.y)) for points in of(every, Points)] == [([4], [4])]
    assert [values(line) for line in of(curve, Line)] == [[None, 70], [25, None]]
    assert [(rule.axis, rule.at) for rule in of(curve, Rule)] == [("x", 4)]


def test_variance_and_covariance_are_shown_beside_their_bounds_and_by_distance_for_the_last_round() -> None:
    falls, held, whole, clients = picture("variance").panels
    assert [line.name for line in of(held, Line)] == ["round 10", "round 10, bound", "round 20", "round 20, bound"]
    assert [values(line) for line in of(falls, Line)][:2] == [[0.2, 0.1], [0.2, 0.1]]
    assert [list(line.x) for line in of(whole, Line)] == [[1, 2], [1, 2], [1], [1]]
    (points,) = of(clients, Points)
    assert (points.names, points.x, points.y) == (["2"], [0.0], [0.2])


def test_coverage_is_shown_by_size_over_full_windows_and_by_round_beside_what_is_expected() -> None:
    by_size, by_round, labels, _ = picture("coverage").panels
    measured, uniform = of(by_size, Line)
    assert (values(measured), values(uniform)) == ([50, 75], [50, 75])
    assert [values(line) for line in of(by_round, Line)] == [[50, 50, 50], [50, 50, 100]]
    assert values(of(labels, Line)[0]) == [0.2, 0.1]
    assert len(picture("coverage", expected=[None, None], distance=None).panels) == 2


def test_averages_are_shown_by_their_size_beside_the_model_and_the_choice() -> None:
    values_of, loss = picture("averages").panels
    assert [values(line) for line in of(values_of, Line)] == [[50, 60], [50, 50], [50, 70]]
    assert [values(line) for line in of(loss, Line)] == [[1, None], [1, 1]]
    assert {(rule.axis, rule.at) for rule in of(values_of, Rule)} == {("x", 4), ("y", 50)}
    without = picture("averages", chosen=None, model=None).panels[0]
    assert len(without.layers) == 2


@pytest.mark.parametrize("values", [[[None] * 3] * 3, full([[1.0] * 3] * 3)], ids=["nothing", "flat"])
@pytest.mark.parametrize("kind", ["plane", pytest.param("surface", marks=pytest.mark.full)])
def test_planes_of_which_nothing_is_known_and_flat_ones_are_drawn(
    kind: str, values: list[list[float]], tmp_path: Path
) -> None:
    draw(picture(kind, loss=values, error=values), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_surfaces_that_are_shown_together_have_the_scales_of_all_and_planes_their_own() -> None:
    high, plane = (10 + np.arange(9.0).reshape(3, 3)).tolist(), found("plane", loss=[[100.0] * 3] * 3)
    drawn = pictures([found("surface"), plane, found("surface", loss=high)])
    low, beside, above = (of(picture.panels[0], Field)[0].levels for picture in drawn)
    assert low == above and low[0] == 0.5 and 10 < low[-1] < 18
    assert beside[0] == 100
    alone = of(picture("surface", loss=high).panels[0], Field)[0].levels
    assert alone[0] == 10 and (np.diff(alone) > 0).all()
    scales = [plotly(picture)["views"][0]["data"][0] for picture in (drawn[0], drawn[2])]
    assert scales[0]["cmin"] == scales[1]["cmin"] == 0.5 and scales[0]["cmax"] == scales[1]["cmax"]


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="kind = 'pie': must be 'line' or 'plane'"):
        pictures([{"kind": "pie", "title": ""}])
