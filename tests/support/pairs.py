"""Pairs of the values of two parameters, few of them by default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def few(longer: Iterable[Any], shorter: Sequence[Any]) -> list[Any]:
    """All pairs of a value of each. By default each value is met once, of the longer ones; the other pairs are full."""
    pairs = [(i, j, one, other) for i, one in enumerate(longer) for j, other in enumerate(shorter)]
    return [
        pytest.param(one, other, marks=() if i % len(shorter) == j else pytest.mark.full) for i, j, one, other in pairs
    ]
