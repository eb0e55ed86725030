"""What a setting refuses, found by trying: its own errors say which numbers would be right."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, get_args

from fedsash.basics.errors import MOST, FedsashError, SettingError
from fedsash.lab.config.registry import REQUIRED, Make, Option, options

TRIED = {int: (-(10**12), 10**12, 0), float: (-1e300, 1e300, 0.0)}
"""Numbers that are beyond most limits."""
FITTING: dict[Any, Any] = {int: 2, float: 0.5, str: "x"}
"""Values for required options that are not tried."""
ENDLESS = re.compile(rf"( and )?at most {MOST:,}$")
"""A limit that no run would ever reach."""


def limits(make: Make, option: Option) -> list[str]:
    """What the settings of class `make` say of wrong numbers, such as "at least 1"; empty if they refuse none."""
    if not is_dataclass(make):
        return []
    known = options(make)
    others = {name: FITTING.get(one.kind) for name, one in known.items() if one.default is REQUIRED}
    kinds = get_args(option.kind) if isinstance(option.kind, UnionType) else (option.kind,)
    tried = [number for kind, numbers in TRIED.items() if kind in kinds for number in numbers]
    found = [_said(make, option.name, others | {option.name: number}) for number in tried]
    return list(dict.fromkeys(filter(None, found)))


def _said(make: Make, name: str, settings: dict[str, Any]) -> str:
    """The limit in the error of these settings; empty if there is none, or if it is about something else."""
    try:
        with suppress(TypeError, AttributeError):
            make(**settings)
    except SettingError as error:
        return ENDLESS.sub("", error.right.removeprefix("must be ")) if error.field == name else ""
    except FedsashError:
        pass
    return ""
