"""What a setting refuses, found by trying: its own errors say which numbers would be right."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from ...settings.errors import MOST, FedsashError, SettingError
from ...settings.limits import Limit, limit_in, limited_hints
from ...settings.options import REQUIRED, Make, Option, options

TRIED = {int: (-(10**12), 10**12, 0), float: (-1e300, 1e300, 0.0)}
"""Numbers that are beyond most limits."""
FITTING: dict[Any, Any] = {int: 2, float: 0.5, str: "x"}
"""Values for required options that are not tried."""
ENDLESS = re.compile(rf"( and )?at most {MOST:,}$")
"""A limit that no run would ever reach."""
BOUND = re.compile(r"(at least|at most|above|below) (-?[\d.,]*\d(?:e[+-]?\d+)?)")
OR_NOTHING = "0, or at least "
"""How a limit begins of a number that may also be 0."""


@dataclass(frozen=True)
class Limits:
    """The least and the most that a number may be, and whether these ends themselves are left out; None is no limit."""

    least: float | None = None
    most: float | None = None
    above: bool = False
    below: bool = False


def limits(make: Make, option: Option) -> list[str]:
    """What the settings of class `make` say of wrong numbers, such as "at least 1"; empty if they refuse none.

    Limits that are types are read; those that depend on more are found by trying.
    """
    described = _described(make, option)
    if described is not None:
        words = [described.words_for(True), described.words_for(False)]
        return list(dict.fromkeys(filter(None, (ENDLESS.sub("", end) for end in words))))
    return list(dict.fromkeys(filter(None, (ENDLESS.sub("", said) for said in _refusals(make, option)))))


def _described(make: Make, option: Option) -> Limit | None:
    """The limits that an option's type has, with the type of its numbers."""
    return limit_in(limited_hints(make).get(option.name)) if isinstance(make, type) else None


def bounds(make: Make, option: Option) -> Limits:
    """The same as numbers. An end is left out if the class refuses it."""
    described = _described(make, option)
    if described is not None:
        interval = described.interval
        return Limits(*described.ends, interval.gt is not None, interval.lt is not None)
    least, most = None, None
    for said in _refusals(make, option):
        if said.startswith("positive"):
            least = 0.0
        if between := re.match(r"between (-?[\d.]+) and (-?[\d.]+)", said):
            least, most = float(between[1]), float(between[2])
        for word, digits in BOUND.findall(said):
            number = float(digits.replace(",", ""))
            if said.startswith(OR_NOTHING) and word == "at least":
                number = 0.0
            if word in ("at least", "above"):
                least = number
            else:
                most = number
    above = least is not None and _refuses(make, option, least)
    below = most is not None and _refuses(make, option, most)
    return Limits(least, most, above, below)


def _refuses(make: Make, option: Option, number: float) -> bool:
    """Whether the class refuses a number."""
    value = int(number) if _takes(option, int) and number.is_integer() else number
    return bool(_said(make, option.name, _others(make) | {option.name: value}))


def _takes(option: Option, kind: type) -> bool:
    kinds = get_args(option.kind) if get_origin(option.kind) in (Union, UnionType) else (option.kind,)
    return kind in kinds


def _others(make: Make) -> dict[str, Any]:
    """Values for the options without which there is no object."""
    return {name: FITTING.get(one.kind) for name, one in options(make).items() if one.default is REQUIRED}


def _refusals(make: Make, option: Option) -> list[str]:
    """What the class says would be right, of each number that it refuses."""
    if not is_dataclass(make):
        return []
    tried = [number for kind, numbers in TRIED.items() if _takes(option, kind) for number in numbers]
    return [_said(make, option.name, _others(make) | {option.name: number}) for number in tried]


def _said(make: Make, name: str, settings: dict[str, Any]) -> str:
    """The limit in the error of these settings; empty if there is none, or if it is about something else."""
    try:
        with suppress(TypeError, AttributeError):
            make(**settings)
    except SettingError as error:
        right = error.right.removeprefix("must be ").replace("must not be ", "not ", 1)
        return right if error.field == name else ""
    except FedsashError:
        pass
    return ""
