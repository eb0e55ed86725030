"""The failure of a check: one sentence with the checked object, the identity, and the differences."""

from __future__ import annotations

from .equality import Comparison


def expect(holds: object, subject: object, identity: str) -> None:
    """Raise `AssertionError` unless `holds`. If that is a `Comparison`, the sentence contains its differences."""
    if not holds:
        found = f" ({holds})" if isinstance(holds, Comparison) else ""
        raise AssertionError(f"{subject}: {identity}{found}")
