"""Descriptions refuse what does not fit, and fields of one label have one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsash.runs.pictures import Axis, Bars, Dots, Field, Line, Panel, Picture, Points, Spans, look
from fedsash.runs.pictures.scales import common
from fedsash.runs.pictures.styles import many

WRONG: dict[str, Any] = {
    "a line": lambda: Line("", [1, 2], [1], look(0)),
    "its errors": lambda: Line("", [1, 2], [1, 2], look(0), errors=[1]),
    "its smoothed values": lambda: Line("", [1, 2], [1, 2], look(0), smooth=[1]),
    "points": lambda: Points(["a"], [1], [1, 2]),
    "bars": lambda: Bars(["a"], [1, 2], [[1]], ["red"]),
    "their colours": lambda: Bars(["a"], [1], [[1]], []),
    "spans": lambda: Spans("train", [0, 1], [0, 1], [2], "red"),
    "dots": lambda: Dots([[1, 2], [3]], ["red", "blue"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_lists_of_different_lengths_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"\d values stand against \d places"):
        WRONG[name]()


def test_a_field_that_does_not_fit_its_places_is_refused() -> None:
    with pytest.raises(ValueError, match="its loss must have 2 rows of 1 values"):
        Field("loss", [0], [0, 1], [[1]])


def pictured(*fields: Field) -> Picture:
    return Picture("", [Panel("", Axis(), Axis(), [field]) for field in fields])


def test_fields_of_one_label_have_one_ascending_scale_from_the_lowest_value_of_all() -> None:
    low = Field("loss", [0, 1, 2], [0], [[0.5, 1, None]])
    high = Field("loss", [0, 1, 2], [0], [[10, 12, 90]])
    other = Field("error", [0, 1], [0], [[3, 4]])
    (alone,) = common([pictured(high)])
    one, two = common([pictured(low, other), pictured(high)])
    levels = [[layer.levels for panel in p.panels for layer in panel.layers] for p in (alone, one, two)]
    assert levels[1][0] == levels[2][0] != levels[0][0] and levels[1][1][0] == 3
    assert levels[0][0][0] == 10 and levels[1][0][0] == 0.5 and levels[1][0][-1] < 90
    assert (np.diff(levels[1][0]) > 0).all()


@pytest.mark.parametrize("values", [[[None, None]], [[1.0, 1.0]]], ids=["nothing", "flat"])
def test_a_field_of_which_nothing_is_known_and_a_flat_one_have_a_scale(values: list[list[float | None]]) -> None:
    (picture,) = common([pictured(Field("loss", [0, 1], [0], values))])
    assert (np.diff(picture.panels[0].layers[0].levels) > 0).all()


def test_a_dot_is_as_large_as_its_share_of_its_column() -> None:
    dots = Dots([[3, 0, 5], [1, 0, 0]], ["red", "blue"])
    assert dots.places() == [(0, 0, 3, 0.75), (2, 0, 5, 1.0), (0, 1, 1, 0.25)]


def test_forty_lines_and_a_hundred_classes_look_different() -> None:
    assert len({look(place) for place in range(42)}) == 42
    assert len({(look(place).colour, look(place).symbol) for place in range(42)}) == 42
    assert all(len(set(many(count))) == count for count in (1, 10, 11, 100))
