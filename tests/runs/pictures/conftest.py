"""Pictures are looked at here."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nothing_is_drawn() -> None:
    """Nothing is left out."""
