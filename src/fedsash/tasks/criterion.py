"""The criterion: the number that decides between models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..settings.setting import Setting
from .metrics import Better

UNKNOWN = "-"
"""What stands in a table for a value that nobody knows."""
TARGET = 0.8
"""The target of an accuracy, unless the evaluation names another one."""


def _form(value: float) -> str:
    """The format of a number that is no share."""
    return ",.0f" if 9_999.5 <= abs(value) < 1e9 else ".4g"


@dataclass(frozen=True)
class Criterion(Setting):
    """The number that decides between models.

    A number that is None or NaN is never better than another one.
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
        if value is None or math.isnan(value):
            return UNKNOWN
        return f"{100 * value:.{digits}f} %" if self.share else f"{value:{_form(value)}}"

    def label(self, where: str = "", name: str = "") -> str:
        """What an axis of values is called, such as "accuracy (test, %)"; another `name` for another such number."""
        inside = ", ".join(filter(None, [where, "%" if self.share else ""]))
        return f"{name or self.name} ({inside})" if inside else name or self.name

    def drawn(self, values: Iterable[float | None]) -> list[float | None]:
        """The values as they are drawn: shares in per cent."""
        return [None if value is None else self.scale * value for value in values]

    @property
    def scale(self) -> int:
        """By what a value is multiplied where it is drawn: 100 for a share, else 1."""
        return 100 if self.share else 1

    def plain(self, value: float) -> str:
        """The value with as many digits as it has, such as a target."""
        return f"{100 * value:g} %" if self.share else f"{value:g}"

    def spread(self, value: float | None, width: float | None, digits: int = 1, sign: str = "") -> str:
        """`value ± width`, as `text` shows a single value, without a unit."""
        if value is None or math.isnan(value):
            return UNKNOWN
        shown = self.scale * value
        spread = self.scale * (width or 0.0)
        form, wide = (f".{digits}f",) * 2 if self.share else (_form(shown), _form(spread))
        return f"{shown:{sign}{form}}" + ("" if width is None else f" ± {spread:{wide}}")

    def gain(self, value: float, over: float) -> float:
        """How much better `value` is than `over`: positive if it is better."""
        return value - over if self.better == "higher" else over - value

    @property
    def error(self) -> str:
        """What should be low: 1 - a share that should be high, the negative of another such number, or the number."""
        if self.better == "lower":
            return self.name
        return "error" if self.share else f"-{self.name}"

    def error_of(self, value: float) -> float:
        """The number that `error` names."""
        if self.better == "lower":
            return value
        return 1 - value if self.share else -value

    def wins(self, a: float | None, b: float | None) -> bool:
        """Whether `a` is better than `b`."""
        if a is None or math.isnan(a):
            return False
        return b is None or math.isnan(b) or (a > b if self.better == "higher" else a < b)

    def best(self, values: Mapping[Any, float | None]) -> Any:
        """The first key with the best value; None if no value is a number."""
        best = None
        for key, value in values.items():
            if self.wins(value, None if best is None else values[best]):
                best = key
        return best

    def reached(self, value: float | None) -> bool:
        """Whether a value reaches the target."""
        if self.target is None or value is None or math.isnan(value):
            return False
        return value >= self.target if self.better == "higher" else value <= self.target
