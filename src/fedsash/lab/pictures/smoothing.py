"""The Savitzky-Golay filter of IMA's figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

WINDOW, ORDER = 10, 2


def smooth(values: Sequence[float]) -> list[float]:
    """Each value as a polynomial of degree 2 fitted to 10 neighbours gives it (Savitzky and Golay, 1964).

    This is SciPy's filter as papers use it: its window being even, it gives the polynomial half an evaluation after
    each one, but for the five at either end. Neighbours are successive evaluations, however many rounds apart. Values
    that are not finite split the sequence; parts of fewer than 10 values stay as they are.
    """
    from scipy.signal import savgol_filter

    result: list[float] = []
    for finite, part in groupby(values, math.isfinite):
        piece = list(part)
        fits = finite and len(piece) >= WINDOW
        result += savgol_filter(piece, WINDOW, ORDER).tolist() if fits else piece
    return result
