"""The failure of a check: one sentence with the checked object, the identity, and the differences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..settings.errors import one_line
from .equality import Comparison


def expect(holds: object, subject: object, identity: str) -> None:
    """Raise `AssertionError` unless `holds`. If that is a `Comparison`, the sentence contains its differences."""
    if not holds:
        found = f" ({holds})" if isinstance(holds, Comparison) else ""
        raise AssertionError(f"{subject}: {identity}{found}")


@contextmanager
def in_one_sentence(subject: object, identity: str = "it must run without an error") -> Iterator[None]:
    """Turn any exception inside into an `AssertionError` with the `subject`, the `identity` and what was raised."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:  # whatever the code of others raises
        raise AssertionError(f"{subject}: {identity} ({type(error).__name__}: {one_line(error)})") from error
