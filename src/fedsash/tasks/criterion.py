"""The criterion: the number that decides between models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from ..settings.setting import Setting
from .metrics import Better

UNKNOWN = "-"
"""What stands in a table for a value that nobody knows."""
TARGET = 0.8
"""The target of an accuracy, unless the evaluation names another one."""


def _format_of(value: float) -> str:
    """The format of a number that is no share."""
    if 9_999.5 <= abs(value) < 1e9:
        return ",.0f"
    return ".4g"


def _is_number(value: float | None) -> TypeGuard[float]:
    """Whether a value is known: neither None nor NaN."""
    return value is not None and not math.isnan(value)


def _decides(value: float | None) -> TypeGuard[float]:
    """Whether a value may decide between models: a run's records have null for one that is not finite."""
    return value is not None and math.isfinite(value)


@dataclass(frozen=True)
class Criterion(Setting):
    """The number that decides between models.

    A number that is None, NaN or infinite is never better than another one.
    """

    name: str = "accuracy"
    """the name of the number"""
    better: Better = "higher"
    """whether a higher or a lower number is better"""
    share: bool = True
    """whether it is a share, which is shown in per cent"""
    target: float | None = TARGET
    """the number that models should reach, if there is one"""

    def text(self, value: float | None, digits: int = 1) -> str:
        """The value as people read it: a share in per cent with `digits` digits, others with four significant ones.

        Numbers from ten thousand up to a thousand million are whole ones: 12,346.
        """
        if not _is_number(value):
            return UNKNOWN
        if self.share:
            return f"{100 * value:.{digits}f} %"
        return f"{value:{_format_of(value)}}"

    def label(self, where: str = "", name: str = "") -> str:
        """The label of an axis of values, such as "accuracy (test, %)"; another `name` for another such number."""
        name = name or self.name
        remarks = []
        if where:
            remarks.append(where)
        if self.share:
            remarks.append("%")
        if not remarks:
            return name
        return f"{name} ({', '.join(remarks)})"

    def drawn(self, values: Iterable[float | None]) -> list[float | None]:
        """The values as they are drawn: shares in per cent."""
        return [None if value is None else self.scale * value for value in values]

    @property
    def scale(self) -> int:
        """The factor of a value where it is drawn: 100 for a share, else 1."""
        return 100 if self.share else 1

    def plain(self, value: float) -> str:
        """The value with as many digits as it has, such as a target."""
        if self.share:
            return f"{100 * value:g} %"
        return f"{value:g}"

    def spread(self, value: float | None, width: float | None, digits: int = 1, sign: str = "") -> str:
        """`value ± width`, as `text` shows a single value, without a unit."""
        if not _is_number(value):
            return UNKNOWN
        middle = self._scaled(value, digits, sign)
        if width is None:
            return middle
        return f"{middle} ± {self._scaled(width, digits)}"

    def _scaled(self, value: float, digits: int, sign: str = "") -> str:
        """A value as it is drawn, in words, without a unit."""
        scaled = self.scale * value
        format = f".{digits}f" if self.share else _format_of(scaled)
        return f"{scaled:{sign}{format}}"

    def gain(self, value: float, over: float) -> float:
        """How much better `value` is than `over`: positive if it is better."""
        if self.better == "higher":
            return value - over
        return over - value

    @property
    def error(self) -> str:
        """The name of what should be low: 1 - a share that should be high, the negative of another such number, or the
        number itself."""
        if self.better == "lower":
            return self.name
        if self.share:
            return "error"
        return f"-{self.name}"

    def error_of(self, value: float) -> float:
        """The number that `error` names."""
        if self.better == "lower":
            return value
        if self.share:
            return 1 - value
        return -value

    def wins(self, a: float | None, b: float | None) -> bool:
        """Whether `a` is better than `b`."""
        if not _decides(a):
            return False
        if not _decides(b):
            return True
        if self.better == "higher":
            return a > b
        return a < b

    def best(self, values: Mapping[Any, float | None]) -> Any:
        """The first key with the best value; None if no value is finite."""
        best_key = None
        best_value = None
        for key, value in values.items():
            if self.wins(value, best_value):
                best_key = key
                best_value = value
        return best_key

    def reached(self, value: float | None) -> bool:
        """Whether a value reaches the target."""
        if self.target is None or not _decides(value):
            return False
        if self.better == "higher":
            return value >= self.target
        return value <= self.target
