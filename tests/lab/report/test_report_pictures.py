"""Pictures of analyses: every kind, from its JSON, on scales that they have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash.lab.report.pictures import KINDS, draw, draw_all
from fedsash.lab.report.pictures_terrain import Scales

AXIS = [-1.0, 0.0, 1.0]
GRID = [[2.0, 1.0, 2.5], [1.5, 0.5, 1.0], [None, 1.0, 9.0]]
ERROR = [[0.5, 0.25, 0.5], [0.5, 0.125, 0.5], [None, 0.5, 0.9]]
TERRAIN = {"x": AXIS, "y": AXIS, "loss": GRID, "error": ERROR, "split": "test"}
FOUND: dict[str, dict[str, Any]] = {
    "line": {"models": ["a_$1", "b"], "beta": AXIS, "loss": [1.0, None, 2.0], "error": [0, 0.2, 1], "split": "test"},
    "plane": {**TERRAIN, "models": {"a_$1": [0, 0], "b": [1, 0], "c": [0, 1]}, "mean": [0.33, 0.33]},
    "surface": {**TERRAIN, "model": "model", "seed": 0},
    "decomposition": {
        "rounds": [10],
        **{name: [0.5] for name in ("squared_error", "train_bias", "heterogeneous_bias")},
        **{name: [None] for name in ("variance", "covariance", "cka")},
        **{name: [2.0] for name in ("locality_max", "locality_mean")},
    },
    "flatness": {
        "split": "train",
        "models": {name: {"eigenvalues": [9.0, -1.0], "sharpness": {"0.05": 0.1}} for name in ("model", "w")},
    },
    "window": {
        "rounds": [1, 2], "weights": [1.0, 0.5], "clients": [0.0, 1.5], "distance_rounds": [1, 2], "distances": [1, 1],
    },
    "averages": {
        "split": "test", "round": 6, "model": 0.5, "sizes": [2, 4], "chosen": 4,
        "windows": {"accuracy": [0.5, 0.6], "loss": [1.0, None], "held_out": [0.5, 0.7]},
        "emas": {"decay": [1 / 3, 0.6], "error": [0.3, 0.2], "accuracy": [0.5, 0.5], "loss": [1.0, 1.0]},
    },
}  # fmt: skip


def analysis(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps({"kind": kind, "title": "runs/a_$1: what it is", **FOUND[kind]}))
    return found


def test_every_kind_is_tried_here() -> None:
    assert set(FOUND) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_as_png_and_as_pdf(kind: str, tmp_path: Path) -> None:
    draw_all({tmp_path / f"{kind}.{ending}": analysis(kind) for ending in ("png", "pdf")})
    assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / f"{kind}.pdf").read_bytes().startswith(b"%PDF")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("values", [[[None] * 3] * 3, [[1.0] * 3] * 3], ids=["nothing", "flat"])
@pytest.mark.parametrize("kind", ["plane", "surface"])
def test_planes_of_which_nothing_is_known_and_flat_ones_are_drawn(
    kind: str, values: list[list[float]], tmp_path: Path
) -> None:
    draw({**analysis(kind), "loss": values, "error": values}, tmp_path / "x.png")


def test_scales_reach_from_the_lowest_point_of_all_and_are_ascending() -> None:
    low, high = analysis("surface"), {**analysis("surface"), "loss": (10 + np.arange(9.0).reshape(3, 3)).tolist()}
    alone, both = Scales.of([high]), Scales.of([low, high])
    assert alone.loss[0] == 10 and both.loss[0] == 0.5 and both.error[0] == 12.5
    assert both.loss[-1] <= 18 and (np.diff(both.loss) > 0).all()


def test_surfaces_that_are_drawn_together_look_otherwise_than_alone(tmp_path: Path) -> None:
    low, high = analysis("surface"), {**analysis("surface"), "loss": (10 + np.arange(9.0).reshape(3, 3)).tolist()}
    draw(high, tmp_path / "alone.png")
    draw_all({tmp_path / "low.png": low, tmp_path / "high.png": high, tmp_path / "line.png": analysis("line")})
    assert (tmp_path / "alone.png").read_bytes() != (tmp_path / "high.png").read_bytes()


def test_an_unknown_kind_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no picture of the kind 'pie'; there are line, plane"):
        draw({"kind": "pie", "title": ""}, tmp_path / "x.png")
