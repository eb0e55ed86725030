"""What all tests with Flower share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def little_to_collect() -> None:
    """Flower collects garbage each time it reads arrays: what there is before need not be looked at again and again."""
    gc.collect()
    gc.freeze()
