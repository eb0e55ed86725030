"""The weights that averages give to the models of a trajectory, and their approximation by means of blocks of models.

A profile is p float64 `[n]`: `p[i - 1]` is the weight of the i-th model, and the weights sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..settings.errors import check
from .ema import EMA

Profile = NDArray[np.float64]

FLATTEST = 1 / math.sqrt(12)
"""The largest possible sigma_rel: the power function with exponent 0, which is the mean of all models."""


def ema(decay: float, n: int) -> Profile:
    """The profile of `EMA(decay)` after n models: `(1 - decay) decay^(n-i)`, and `decay^(n-1)` for the first one."""
    EMA(decay)  # refuses a decay that it can't have
    p = (1 - decay) * decay ** np.arange(n - 1, -1, -1, dtype=np.float64)
    p[0] = decay ** (n - 1)
    return p


def power(sigma_rel: float, n: int) -> Profile:
    """The profile of a power-function EMA after n models (Karras et al. 2024, section 3 and appendix C).

        w^_i = beta_i w^_{i-1} + (1 - beta_i) w_i,    beta_i = (1 - 1/i)^(gamma+1)

    It gives the i-th model the weight `(i^(gamma+1) - (i-1)^(gamma+1)) / n^(gamma+1)`. `sigma_rel` is the standard
    deviation of the profile, relative to the length of the training:
    sigma_rel^2 = (gamma+1) / ((gamma+2)^2 (gamma+3)). Raises `ValueError` unless it is above 0 and at most `FLATTEST`.
    """
    edges = np.arange(n + 1, dtype=np.float64) / n
    return np.diff(edges ** (exponent(sigma_rel) + 1))


def exponent(sigma_rel: float) -> float:
    """The gamma of a sigma_rel: the largest root of a cubic (see `power` for the formula and the error raised)."""
    check(0 < sigma_rel <= FLATTEST, "sigma_rel", sigma_rel, f"must be above 0 and at most {FLATTEST:.4f}")
    t = sigma_rel**-2
    return float(np.roots([1, 7, 16 - t, 12 - t]).real.max())


def block_weights(p: Profile, counts: Sequence[int]) -> NDArray[np.float64]:
    """The weights `[blocks]` of the blocks' means in the least-squares approximation of the profile `p` `[n]`.

    `counts` ascend from 0 to n: block j holds the models `counts[j-1] + 1` to `counts[j]`. The mean of a block has a
    profile that is constant in the block and 0 elsewhere. Blocks do not overlap, so the least-squares solution gives
    each block the sum of the weights of p in it. (Karras et al. solve a linear system, since their stored profiles
    overlap.)
    """
    edges = np.concatenate([[0.0], np.cumsum(p)])[list(counts)]
    return np.diff(edges)


def misplaced(p: Profile, counts: Sequence[int]) -> float:
    """The share of the weight that the approximation of `block_weights` gives to other models than `p` `[n]` does.

    With q `[n]` the profile of the approximation:

        e = 1/2 sum |p - q|,    0 <= e <= 1

    This weight stays in its block. So the error of the average is at most e times the largest distance between two
    models of one block. For an EMA and blocks of k models, e is about k (1 - decay) / 8 if k (1 - decay) is small.
    """
    lengths = np.diff(counts)
    return 0.5 * float(np.abs(p - np.repeat(block_weights(p, counts) / lengths, lengths)).sum())


def decay_of(size: int) -> float:
    """The decay of the EMA that is as long as a window of `size` models: (size - 1) / (size + 1).

    Both then have the same effective number of models, 1 / (sum of the squared weights). So both reduce the variance
    of independent noise by the same factor.
    """
    return (size - 1) / (size + 1)
