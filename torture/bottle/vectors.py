"""Vectors in NumPy, and how far they may be from each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Model = NDArray[np.float64]

TOLERANCE = 1e-12
"""How far a vector may be from the one by the formula."""


def distant(what: str, value: Any, expected: Any, where: str, tolerance: float = TOLERANCE) -> Iterator[str]:
    """A line if a vector or a tensor is further away from the expected one, or if one of them is not finite."""
    error = float(np.abs(np.asarray(value) - np.asarray(expected)).max())
    if not error <= tolerance:
        yield f"{what} is {error:.1e} away from {where}"
