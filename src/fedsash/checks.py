"""One way to refuse a bad value: a line that names it and says what would be right."""

from __future__ import annotations

from math import isfinite


def check(condition: bool, field: str, value: object, right: str) -> None:
    """Raise `ValueError("{field} = {value!r}: {right}")` unless `condition` holds."""
    if not condition:
        raise ValueError(f"{field} = {value!r}: {right}")


def check_strength(field: str, value: float) -> None:
    """Raise `ValueError` unless a factor or a distance is finite and not negative."""
    check(isfinite(value) and value >= 0, field, value, "must be a finite number of at least 0")


def check_choice(field: str, value: str, *known: str) -> None:
    """Raise `ValueError` unless the value is one of the known ones."""
    check(value in known, field, value, f"must be {' or '.join(map(repr, known))}")


def one_line(error: BaseException) -> str:
    """What an error says, on one line, or its kind if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
