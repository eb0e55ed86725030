"""The limits of numbers in settings, as types: `size: Count`. pydantic checks them; whoever shows them reads them.

    @dataclass(frozen=True)
    class Window(Average):
        size: Count
        decay: Fraction = 0.0

A limit is an `Interval` of the library annotated-types, which pydantic knows, too. Limits that depend on other fields
stay in `__post_init__`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval

from .errors import LONGEST, MOST

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
Concentration: TypeAlias = Annotated[float, Interval(ge=1e-9, le=MOST)]
"""The concentration of a Dirichlet distribution; far outside, gamma draws overflow."""
Guard: TypeAlias = Annotated[float, Interval(gt=0, le=math.inf)]
"""A limit above 0. An infinite one limits nothing."""
Positive: TypeAlias = Annotated[float, Interval(gt=0, lt=math.inf)]
"""An amount, of bytes or seconds for example, above 0 and finite."""
Epochs: TypeAlias = Annotated[int, Interval(ge=1, le=LONGEST)]
"""A number of epochs or steps of a client in one round, at least 1."""
EpochsFromZero: TypeAlias = Annotated[int, Interval(ge=0, le=LONGEST)]
"""The same, or 0."""
AtLeastOne: TypeAlias = Annotated[int, Interval(ge=1)]
"""A number, at least 1, whose upper end depends on other things."""
Seed: TypeAlias = Annotated[int, Interval(ge=0)]
"""What random draws depend on: any integer from 0 on."""


@dataclass(frozen=True)
class Unit:
    """The unit of an amount, as errors name it: `rate: Annotated[Positive, Unit("bytes per second")]`."""

    name: str


Gigabytes: TypeAlias = Annotated[Positive, Unit("in GB")]
"""An amount of memory."""


@dataclass(frozen=True)
class Remark:
    """What errors and lists say behind a limit, with its first sign: `Remark(" (leave it out for all users)")`."""

    text: str


@dataclass(frozen=True)
class Limit:
    """An interval in a setting's type: `number` is the type of its numbers, int or float.

    `remark` is what is said behind it, such as its unit.
    """

    number: type
    interval: Interval
    remark: str = ""

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The numbers at which it begins and ends, whether they are in it or not; None where it has no end."""
        interval: Any = self.interval
        least = interval.gt
        if interval.ge is not None:
            least = interval.ge
        most = interval.lt
        if interval.le is not None:
            most = interval.le
        if most == math.inf:
            most = None
        return least, most

    @property
    def lower_end(self) -> str:
        """Where it begins: "at least 1", "above 0"; empty if nowhere."""
        least, _ = self.ends
        if least is None:
            return ""
        word = "above" if self.interval.ge is None else "at least"
        return f"{word} {_shown(least)}"

    @property
    def upper_end(self) -> str:
        """Where it ends: "at most 1,000", "below 1"; empty if nowhere."""
        _, most = self.ends
        if most is None:
            return ""
        word = "below" if self.interval.le is None else "at most"
        return f"{word} {_shown(most)}"

    @property
    def words(self) -> str:
        """All of it: "positive, in GB", "between 0 and 1", "at least 0 and below 1"."""
        if self.interval.gt == 0 and not self.upper_end:
            return f"positive{self.remark}"
        if self.interval.ge == 0 and self.interval.le == 1:
            return f"between 0 and 1{self.remark}"
        if self.lower_end and self.upper_end:
            return f"{self.lower_end} and {self.upper_end}{self.remark}"
        return self.lower_end + self.upper_end + self.remark

    def words_for(self, below: bool) -> str:
        """What would be right in place of a number below the interval, or beyond it: of a count only that end."""
        if self.number is not int or not self.lower_end or not self.upper_end:
            return self.words
        end = self.lower_end if below else self.upper_end
        return end + self.remark

    @property
    def listed(self) -> str:
        """All of it for a list, without the end that no run would ever reach."""
        if self.upper_end == f"at most {MOST:,}":
            return self.lower_end + self.remark
        return self.words


@dataclass(frozen=True)
class Inherited:
    """The limit of a field that a subclass writes anew without one."""

    limit: Limit


CONTAINERS = (Annotated, Union, UnionType, Literal, tuple, list, set, frozenset, Sequence, dict, Mapping)
"""The forms of types whose members can be checked."""


def limit_in(hint: Any) -> Limit | None:
    """The limit in a type: its own, or that of a member of a union or of a list; None without."""
    if get_origin(hint) is Annotated:
        number, *metadata = get_args(hint)
        limit = _limit_of(number, metadata)
        if limit is not None:
            return limit
    if get_origin(hint) in CONTAINERS:
        for member in get_args(hint):
            limit = limit_in(member)
            if limit is not None:
                return limit
    return None


def _limit_of(number: Any, metadata: Iterable[Any]) -> Limit | None:
    """The limit of a number's type that `Annotated` says; None if it says none."""
    interval = None
    remark = ""
    unit = ""
    for rule in metadata:
        if isinstance(rule, Inherited):
            return rule.limit
        if isinstance(rule, Interval) and interval is None:
            interval = rule
        elif isinstance(rule, Remark):
            remark += rule.text
        elif isinstance(rule, Unit):
            unit += f", {rule.name}"
    if interval is None:
        return None
    return Limit(number, interval, remark + unit)


def _shown(number: Any) -> str:
    """A limit as errors write it: 1,000 or 1e-9."""
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:g}".replace("e-0", "e-").replace("e+0", "e")


@cache
def limited_hints(cls: type) -> dict[str, Any]:
    """The types of a class's fields by name, with their limits; those of its bases if its own can't be evaluated.

    A subclass that writes a field's type anew, without limits, keeps those of its base.
    """
    inherited: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited |= limited_hints(base)
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return inherited
    for name, hint in hints.items():
        limit = limit_in(inherited.get(name))
        if limit is not None and limit_in(hint) is None:
            hints[name] = Annotated[hint, Inherited(limit)]
    return hints


def union_of(kinds: Iterable[Any]) -> Any:
    """The union of some types."""
    return reduce(or_, kinds)
