"""A setting's meaning is the docstring below it: in lists, in `help()`, and in classes that extend."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import fedsash as fs
from fedsash.averages import Average
from fedsash.settings.limits import Count
from fedsash.settings.meanings import meanings


@dataclass(frozen=True)
class Described(Average):
    """A mean of mine."""

    size: Count = 3
    """How many models
    are averaged."""
    other: int = 1
    odd = "no field"
    "a text that follows no field"


@dataclass(frozen=True)
class Extended(Described):
    more: int = 2
    """One more."""


def test_a_meaning_is_the_docstring_below_a_field_on_one_line() -> None:
    known = meanings(Extended)
    assert known["size"] == "How many models are averaged." and known["more"] == "One more."
    assert "other" not in known and "odd" not in known


def test_the_docstring_of_a_class_lists_the_meanings_of_its_fields() -> None:
    first, *listed = str(Described.__doc__).splitlines()
    assert first == "A mean of mine." and "- `size`: How many models are averaged." in listed
    assert "- `by_name`" not in str(Described.__doc__)


def test_a_class_without_source_has_no_meanings_and_its_plain_docstring() -> None:
    space: dict[str, Any] = {}
    lines = ["from fedsash.averages import Average", "class Typed(Average):", "    'Typed in.'", "    size: int = 1"]
    exec("\n".join([*lines, "    'How many.'"]), space)
    typed = dataclass(frozen=True)(space["Typed"])
    assert meanings(typed).get("size") is None and str(typed.__doc__).startswith("Typed in.")


def test_a_class_and_its_objects_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(fs.Window)) is fs.Window
    assert pickle.loads(pickle.dumps(fs.Window(3))) == fs.Window(3)
