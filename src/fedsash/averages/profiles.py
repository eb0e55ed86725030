"""The weights that averages give to the models of a trajectory, and how well blocks of models stand in for them.

A profile is p float64 `[n]`: `p[i - 1]` is the weight of the i-th model, and the weights sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..basics.errors import check
from .ema import EMA

Profile = NDArray[np.float64]

FLATTEST = 1 / math.sqrt(12)
"""The sigma_rel of the power function of exponent 0: the mean of all models."""


def ema(decay: float, n: int) -> Profile:
    """The profile of `EMA(decay)` after n models: `(1 - decay) decay^(n-i)`, and `decay^(n-1)` for the first one."""
    EMA(decay)  # refuses what is no decay
    p = (1 - decay) * decay ** np.arange(n - 1, -1, -1, dtype=np.float64)
    p[0] = decay ** (n - 1)
    return p


def power(sigma_rel: float, n: int) -> Profile:
    """The profile of a power-function EMA after n models (Karras et al. 2024, section 3 and appendix C).

        w^_i = beta_i w^_{i-1} + (1 - beta_i) w_i,    beta_i = (1 - 1/i)^(gamma+1)

    gives the i-th model the weight `(i^(gamma+1) - (i-1)^(gamma+1)) / n^(gamma+1)`. `sigma_rel` is the profile's
    standard deviation as a share of the training: sigma_rel^2 = (gamma+1) / ((gamma+2)^2 (gamma+3)).
    """
    edges = np.arange(n + 1, dtype=np.float64) / n
    return np.diff(edges ** (exponent(sigma_rel) + 1))


def exponent(sigma_rel: float) -> float:
    """The gamma of a sigma_rel: the largest root of the cubic that its definition makes of it."""
    check(0 < sigma_rel <= FLATTEST, "sigma_rel", sigma_rel, f"must be above 0 and at most {FLATTEST:.4f}")
    t = sigma_rel**-2
    return float(np.roots([1, 7, 16 - t, 12 - t]).real.max())


def block_weights(p: Profile, counts: Sequence[int]) -> NDArray[np.float64]:
    """The weight `[blocks]` of each block's mean in the best stand-in for the profile.

    `counts` ascend from 0 to n: block j holds the models `counts[j-1] + 1` to `counts[j]`, and its mean is the profile
    that is constant there and 0 elsewhere. No two of them overlap, so the least-squares combination gives each block
    the sum of the weights that p has in it. (Karras et al. solve for it, since their stored profiles do overlap.)
    """
    edges = np.concatenate([[0.0], np.cumsum(p)])[list(counts)]
    return np.diff(edges)


def misplaced(p: Profile, counts: Sequence[int]) -> float:
    """How much of the weight the best stand-in (see `block_weights`) gives to other models than p does.

    With q the profile of the stand-in it is e = 1/2 sum |p - q|, between 0 and 1. Such weight stays in its block, so
    the average errs by at most e times the largest distance between two models of one block. For an EMA and blocks of
    k models, k (1 - decay) small, e is about k (1 - decay) / 8.
    """
    lengths = np.diff(counts)
    return 0.5 * float(np.abs(p - np.repeat(block_weights(p, counts) / lengths, lengths)).sum())


def decay_of(size: int) -> float:
    """The decay of the EMA that is as long as a window of `size` models: (size - 1) / (size + 1).

    Both then average the same number of models, 1 / sum of the squared weights: of independent noise they leave the
    same variance.
    """
    return (size - 1) / (size + 1)
