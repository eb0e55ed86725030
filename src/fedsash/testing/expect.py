"""How a check fails: with one sentence that names what was checked, the identity, and what was found."""

from __future__ import annotations

from .equality import Comparison


def expect(holds: object, subject: object, identity: str) -> None:
    """Raise `AssertionError` unless `holds`; of a `Comparison` the sentence says the differences."""
    if not holds:
        found = f" ({holds})" if isinstance(holds, Comparison) else ""
        raise AssertionError(f"{subject}: {identity}{found}")
