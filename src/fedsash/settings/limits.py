"""The limits of numbers in settings, as types: `size: Count`. `typed` checks them; whoever shows them reads them.

    @dataclass(frozen=True)
    class Window(Average):
        size: Count
        decay: Fraction = 0.0

A limit is an `Interval` of the library annotated-types, which pydantic knows, too. Limits that depend on other fields
stay in `__post_init__`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from numbers import Real
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

from annotated_types import Interval

from .errors import LONGEST, MOST, SettingError

Count: TypeAlias = Annotated[int, Interval(ge=1, le=MOST)]
"""A number of rounds, clients, samples and so on, at least 1."""
CountFromZero: TypeAlias = Annotated[int, Interval(ge=0, le=MOST)]
"""The same, or 0."""
Share: TypeAlias = Annotated[float, Interval(ge=0, le=1)]
"""A share, from 0 to 1."""
Fraction: TypeAlias = Annotated[float, Interval(ge=0, lt=1)]
"""A share or a factor below 1."""
Factor: TypeAlias = Annotated[float, Interval(gt=0, le=1)]
"""A share or a factor above 0."""
Strength: TypeAlias = Annotated[float, Interval(ge=0, le=MOST)]
"""A factor or a distance; beyond, float32 models would only overflow."""
Rate: TypeAlias = Annotated[float, Interval(gt=0, le=MOST)]
"""A rate or a strength that must not be 0."""
Positive: TypeAlias = Annotated[float, Interval(gt=0)]
"""An amount, of bytes or seconds for example, above 0 and finite."""
EpochsFromZero: TypeAlias = Annotated[int, Interval(ge=0, le=LONGEST)]
"""A number of epochs or steps of a client in one round, or 0."""
AtLeastOne: TypeAlias = Annotated[int, Interval(ge=1)]
"""A number, at least 1, whose upper end depends on other things."""


def refusal(kind: type, interval: Interval, value: float) -> str:
    """What would be right in place of a number outside an interval: "must be at least 1"; "" for one inside.

    `kind` is the type of the interval's numbers: of a count only the end is named that was passed.
    """
    if _inside(interval, value):
        return ""
    ge, gt, le, lt = interval.ge, interval.gt, interval.le, interval.lt
    if gt == 0 and le is None and lt is None:
        return "must be positive"
    if ge == 0 and le == 1:
        return "must be between 0 and 1"
    lower = f"at least {_shown(ge)}" if ge is not None else f"above {_shown(gt)}" if gt is not None else ""
    upper = f"at most {_shown(le)}" if le is not None else f"below {_shown(lt)}" if lt is not None else ""
    if kind is int and lower and upper:
        least, _ = ends(interval)
        return f"must be {lower}" if least is not None and value < least else f"must be {upper}"
    return f"must be {' and '.join(filter(None, (lower, upper)))}"


def _inside(interval: Interval, value: Any) -> bool:
    if not math.isfinite(value):
        return False
    return (
        (interval.ge is None or value >= interval.ge)
        and (interval.gt is None or value > interval.gt)
        and (interval.le is None or value <= interval.le)
        and (interval.lt is None or value < interval.lt)
    )


def _shown(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


@cache
def limits_of(cls: type) -> dict[str, tuple[Interval, type]]:
    """The limits of a class's fields by name, each with the type of numbers, int or float, that it is of.

    A subclass that writes a field's type anew, without limits, keeps those of its base.
    """
    found: dict[str, tuple[Interval, type]] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= limits_of(base)
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError):  # a user's annotations that can't be evaluated
        return found
    for name, hint in hints.items():
        for kind, interval in _intervals(hint):
            found[name] = interval, kind
    return found


def ends(interval: Interval) -> tuple[float | None, float | None]:
    """The least and the most number of an interval, or where it begins and ends without being taken."""
    least: Any = interval.ge if interval.ge is not None else interval.gt
    most: Any = interval.le if interval.le is not None else interval.lt
    return least, most


def _intervals(hint: Any) -> Iterator[tuple[type, Interval]]:
    """The intervals in a type: its own, or that of a member of a union."""
    if get_origin(hint) is Annotated:
        kind, *metadata = get_args(hint)
        for each in metadata:
            if isinstance(each, Interval):
                yield kind, each
        return
    for member in get_args(hint):
        if get_origin(member) is Annotated:
            yield from _intervals(member)


def check_limits(cls: type, name: str, value: Any) -> None:
    """Raise `SettingError` for a number outside the limits of a field."""
    limit = limits_of(cls).get(name)
    if limit is None or isinstance(value, bool) or not isinstance(value, Real):
        return
    interval, kind = limit
    number = value if isinstance(value, int) else float(value)  # a fraction, too
    right = refusal(kind, interval, number)
    if right:
        raise SettingError(cls.__name__, name, value, right)
