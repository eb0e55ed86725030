"""One way to refuse a bad value: a line that names it and says what would be right."""

from __future__ import annotations


def check(condition: bool, field: str, value: object, right: str) -> None:
    """Raise `ValueError("{field} = {value!r}: {right}")` unless `condition` holds."""
    if not condition:
        raise ValueError(f"{field} = {value!r}: {right}")
