"""One way to refuse what is wrong or missing: a line that names it and says what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def library(name: str, purpose: str, install: str) -> Iterator[None]:
    """Say what to install where an import inside fails: `ImportError`, on one line."""
    try:
        yield
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that was built for another PyTorch
        needed = f"{name} is needed for {purpose}: pip install '{install}'"
        raise ImportError(f"{needed} ({one_line(error)})") from error


def one_line(error: BaseException) -> str:
    """What an error says, on one line, or its kind if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
