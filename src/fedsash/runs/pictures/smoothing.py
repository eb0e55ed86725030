"""The Savitzky-Golay filter of IMA's figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

WINDOW = 10
ORDER = 2


def smooth(values: Sequence[float]) -> list[float]:
    """Each value of a polynomial of degree 2 that is fitted to 10 neighbours (Savitzky and Golay, 1964).

    This is SciPy's filter as papers use it. Since its window is even, it evaluates the polynomial half an evaluation
    after each value, except for the five values at either end. Neighbours are successive evaluations, even if they are
    many rounds apart. Values that are not finite split the sequence. Parts of fewer than 10 values are not changed.
    """
    from scipy.signal import savgol_filter

    result: list[float] = []
    for finite, part in groupby(values, math.isfinite):
        piece = list(part)
        fits = finite and len(piece) >= WINDOW
        result += savgol_filter(piece, WINDOW, ORDER).tolist() if fits else piece
    return result
