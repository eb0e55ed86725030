"""A new axis needs a line in the registry and none in the parser: the type of a field says what its table is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from fedsash.lab.config import ConfigError
from fedsash.lab.config.registries import REGISTRIES, Registry
from fedsash.lab.config.tables import build, plain


class Shape:
    """An axis."""

    @classmethod
    def of(cls, radius: float) -> Shape:
        """A number is a circle."""
        return Circle(radius)


@dataclass(frozen=True)
class Circle(Shape):
    radius: float = 1.0


@dataclass(frozen=True)
class Square(Shape):
    side: float
    inner: Shape | None = None


@dataclass(frozen=True)
class Frame:
    width: int = 1
    height: int = field(default=0, metadata={"unless": "area"})
    area: int = field(default=4, metadata={"unless": "height"})


@dataclass(frozen=True)
class Tree:
    shape: Shape = field(default_factory=Circle)
    more: Mapping[str, Shape] = field(default_factory=dict)
    frame: Frame = field(default_factory=Frame)
    other: Frame | None = None
    edge: Frame | float | str = 0.5
    frames: Mapping[str, Frame] = field(default_factory=dict)


@pytest.fixture(autouse=True)
def _axis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRIES, "shapes", Registry("shape", {"circle": Circle, "square": Square}, Shape))


@pytest.mark.parametrize(
    ("table", "tree"),
    [
        ({}, Tree()),
        ({"shape": {"radius": 3}}, Tree(Circle(3.0))),
        ({"shape": 3}, Tree(Circle(3.0))),
        ({"shape": {"": 3, "radius": 4.0}}, Tree(Circle(4.0))),
        ({"shape": {"name": "square", "side": 2.0}}, Tree(Square(2.0))),
        ({"shape": {"name": "square", "side": 2.0, "inner": 1.5}}, Tree(Square(2.0, Circle(1.5)))),
        ({"more": {"a": {"name": "circle"}, "b": 2.0}}, Tree(more={"a": Circle(), "b": Circle(2.0)})),
        ({"frame": {"width": 3}}, Tree(frame=Frame(3))),
        ({"other": {"height": 3}}, Tree(other=Frame(height=3))),
        ({"edge": {"area": 3}}, Tree(edge=Frame(area=3))),
        ({"edge": 2}, Tree(edge=2.0)),
        ({"edge": "thick"}, Tree(edge="thick")),
        ({"frames": {"a": {"width": 2}}}, Tree(frames={"a": Frame(2)})),
    ],
)
def test_the_type_of_a_field_says_what_its_table_is(table: dict[str, Any], tree: Tree) -> None:
    assert build(Tree, table, "", Tree()) == tree
    assert build(Tree, plain(tree), "", Tree()) == tree


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            {"shape": {"name": "cirle"}},
            'shape.name = "cirle": must be one of circle, square, or "package',
        ),
        ({"shape": "circle"}, 'shape = "circle": must be a table, [shape] with name = "circle"'),
        ({"shape": {"name": "square"}}, "shape.side is missing: must be a number"),
        ({"more": {"a": {"radius": 2}}}, "more.a.name is missing: must be one of circle, square"),
        ({"more": 3}, "more = 3: must be a table, [more]"),
        ({"frame": 3}, "frame = 3: must be a table, [frame]"),
        ({"frame": {"widht": 3}}, "unknown key frame.widht; did you mean frame.width?"),
        ({"edge": True}, "edge = true: must be a table or a number or a string"),
    ],
)
def test_what_does_not_fit_the_type_is_one_line_that_names_the_key(table: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(Tree, table, "", Tree())
    assert str(error.value).startswith(line) and error.value.key in line and error.value.key


def test_where_two_settings_exclude_each_other_the_table_decides() -> None:
    default = Tree(frame=Frame(width=2, height=5, area=4))
    assert build(Tree, {"frame": {"area": 7}}, "", default).frame == Frame(width=2, height=0, area=7)
    assert build(Tree, {"frame": {"width": 7}}, "", default).frame == Frame(width=7, height=5, area=4)
