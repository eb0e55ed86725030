"""One line for a library that is missing."""

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
