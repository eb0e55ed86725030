"""One line for what other libraries can't do or don't say in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def library(name: str, install: str) -> Iterator[None]:
    """Say what to install where an import inside fails."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{name} is needed for these data: pip install '{install}' ({error})") from error


def one_line(error: Exception) -> str:
    """An exception's message on one line, or its kind if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
