"""Adaptive clipping: the clip norm follows a quantile of the updates' norms (Andrew et al. 2021)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.methods import Adaptive, Private
from fedsash.methods.sampling import Poisson
from support.private import along, sending
from support.worlds import after, identical

QUIET = 1e-9
"""The deviation of the noise on the counts."""


def norm_after(rounds: int, quantile: float, rate: float, **settings: Any) -> float:
    """The clip norm after some rounds from 2, with five clients whose updates have the norms 0.5, 1, 2, 4 and 8."""
    rule = Private(2.0, 0.0, Adaptive(quantile, rate, QUIET))
    return float(after(sending(along(0.5, 1, 2, 4, 8), aggregation=rule, **settings), rounds).aggregation["clip"])


@pytest.mark.parametrize("quantile, rate", [(0.5, 0.2), (1.0, 0.7), (0.0, 0.2)])
def test_a_round_moves_the_clip_norm_as_published(quantile: float, rate: float) -> None:
    """Three of five norms are at most 2."""
    assert norm_after(1, quantile, rate) == pytest.approx(2.0 * math.exp(-rate * (3 / 5 - quantile)), rel=1e-6)


def test_clients_that_do_not_answer_count_as_half_a_client_below() -> None:
    """With m expected clients, b = 1/2 + sum of (b_i - 1/2) / m over those that answer."""
    sampling, m = Poisson(0.6), 3
    ids = sampling.clients(0, np.ones(5, dtype=np.int64), 0)
    b = 0.5 + float(np.array([0.5, 0.5, 0.5, -0.5, -0.5])[ids].sum()) / m
    assert len(ids) != m
    assert norm_after(1, 0.5, 0.2, sampling=sampling) == pytest.approx(2.0 * math.exp(-0.2 * (b - 0.5)), rel=1e-6)


@pytest.mark.parametrize(
    "quantile, low, high",
    [
        (0.1, 0.4, 0.52),
        pytest.param(0.5, 1.9, 2.1, marks=pytest.mark.full),
        pytest.param(0.9, 7.6, 8.4, marks=pytest.mark.full),
    ],
)
def test_the_clip_norm_comes_to_the_quantile(quantile: float, low: float, high: float) -> None:
    assert low < norm_after(400, quantile, 0.03) < high


def test_updates_are_clipped_to_the_norm_of_their_round() -> None:
    world = sending(along(9.0, 9.0), aggregation=Private(1.0, 0.0, Adaptive(1.0, 1.0, QUIET)))
    one, two = after(world, 1), after(world, 2)
    assert float(one.w[0]) == pytest.approx(1.0)
    assert float((two.w - one.w)[0]) == pytest.approx(float(one.aggregation["clip"])) == pytest.approx(math.e)


def test_a_fixed_norm_stays() -> None:
    state = after(sending(along(9.0, 9.0), aggregation=Private(1.0, 0.0)), 3)
    assert identical(state.aggregation["clip"], torch.tensor(1.0, dtype=torch.float64))
