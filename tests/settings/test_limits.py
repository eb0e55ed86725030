"""Limits as types: every interval refuses what lies outside, and says in words what would be right."""

from __future__ import annotations

import fractions
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from annotated_types import Interval
from hypothesis import given
from hypothesis import strategies as st

from fedsash.settings.checks import TypeRefusal, checked
from fedsash.settings.errors import SettingError
from fedsash.settings.limits import (
    Count,
    Factor,
    Fraction,
    Positive,
    Rate,
    Share,
    Strength,
    limit_in,
    limited_hints,
)
from fedsash.settings.setting import Setting

RIGHT: dict[str, tuple[Any, Callable[[float], bool], str]] = {
    "share": (Share, lambda value: 0 <= value <= 1, "must be between 0 and 1"),
    "fraction": (Fraction, lambda value: 0 <= value < 1, "must be at least 0 and below 1"),
    "factor": (Factor, lambda value: 0 < value <= 1, "must be above 0 and at most 1"),
    "strength": (Strength, lambda value: 0 <= value <= 10**9, "must be at least 0 and at most 1,000,000,000"),
    "rate": (Rate, lambda value: 0 < value <= 10**9, "must be above 0 and at most 1,000,000,000"),
    "positive": (Positive, lambda value: 0 < value < math.inf, "must be positive"),
}
NUMBERS = st.one_of(
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False),
    st.sampled_from([0, 1, -1, 0.0, 1.0, 10**9, 10**9 + 1, 1e9, math.inf, -math.inf]),
)


def refused(kind: Any, value: float) -> str:
    """What would be right in place of a value; empty if it is taken."""
    try:
        checked(kind, value)
    except TypeRefusal as refusal:
        return refusal.requirement
    return ""


@pytest.mark.parametrize("name", RIGHT)
@given(value=NUMBERS)
def test_a_limit_says_what_would_be_right(name: str, value: float) -> None:
    kind, inside, words = RIGHT[name]
    assert refused(kind, value) == ("" if inside(value) else words)


@given(value=st.integers(-(2**62), 2**62))
def test_of_a_count_the_end_is_named_that_was_passed(value: int) -> None:
    if value < 1:
        assert refused(Count, value) == "must be at least 1"
    else:
        assert refused(Count, value) == ("must be at most 1,000,000,000" if value > 10**9 else "")


@dataclass(frozen=True)
class Mine(Setting):
    a: Count = 1
    b: Rate | None = None
    c: Count | str = 2
    d: Annotated[float, Interval(ge=-1, lt=3)] = 0.0


@dataclass(frozen=True)
class Extended(Mine):
    e: Fraction = 0.5


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"a": 0}, "Extended.a = 0: must be at least 1"),
        ({"b": 0.0}, "Extended.b = 0.0: must be above 0 and at most 1,000,000,000"),
        ({"c": -3}, "Extended.c = -3: must be at least 1"),
        ({"d": 3.0}, "Extended.d = 3.0: must be at least -1 and below 3"),
        ({"e": 1.0}, "Extended.e = 1.0: must be at least 0 and below 1"),
        ({"e": fractions.Fraction(3, 2)}, "Extended.e = Fraction(3, 2): must be at least 0 and below 1"),
        ({"a": True}, "Extended.a = True: must be an integer"),
    ],
)
def test_a_field_outside_its_limit_is_one_line_also_in_a_class_that_extends(
    settings: dict[str, Any], line: str
) -> None:
    with pytest.raises(SettingError) as refused:
        Extended(**settings)
    assert str(refused.value) == line


def test_what_is_no_number_has_no_limit() -> None:
    assert Extended(b=None, c="auto") == Extended(c="auto")
    limited = {name for name, hint in limited_hints(Extended).items() if limit_in(hint)}
    assert limited == {"a", "b", "c", "d", "e"}


@dataclass(frozen=True)
class WithoutLimit(Mine):
    """Somebody who writes a field's type anew, and another default."""

    a: int = 0


@dataclass(frozen=True)
class Unreadable(Mine):
    """Somebody whose annotation names what is imported for type checks only."""

    other: NotThere = None  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("make", [WithoutLimit, lambda: WithoutLimit(a=-1), lambda: Unreadable(a=0)])
def test_a_subclass_keeps_the_limits_of_its_base_also_for_its_defaults(make: Any) -> None:
    with pytest.raises(SettingError, match="must be at least 1"):
        make()
