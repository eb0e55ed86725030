"""The noise of Private: how much, anew in each round, the same wherever clients train."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.methods import Adaptive, Private
from fedsash.methods.sampling import Poisson, Uniform
from fedsash.methods.server_optimisers import FedAdam
from fedsash.testing import check_federation, close
from support.by_default import rotated
from support.libraries import Library
from support.norms import with_norm
from support.private import UNIFORM, still
from support.worlds import ENGINES, after, federation, mlp

Library("dp_accounting")
D = 20_000


def is_standard_normal(values: Tensor) -> bool:
    """Whether mean, squares and tails `[D]` are within five standard errors of a standard normal's."""
    x = values.double().numpy()
    tails = (np.abs(x) > 1.96).mean() - 0.05
    close_by = abs(x.mean()) < 5 / math.sqrt(D) and abs(tails) < 5 * math.sqrt(0.05 * 0.95 / D)
    return close_by and abs((x**2).sum() - D) < 5 * math.sqrt(2 * D)


@pytest.mark.parametrize("sampling, m", [(Uniform(3), 3), (Poisson(0.5), 2), (Poisson(0.5, dropout=0.5), 1)])
def test_it_is_normal_with_the_deviation_z_times_s_over_m(sampling: Any, m: float) -> None:
    clip, z = 0.3, 1.7
    assert is_standard_normal(after(still(D, aggregation=Private(clip, z), sampling=sampling), 1).w * m / (z * clip))


def test_a_round_without_clients_moves_the_model_by_noise_alone() -> None:
    with still(D, aggregation=Private(1.0, 1.0), sampling=Poisson(0.001)) as world:
        state, report = world.round(world.start())
    assert len(report.clients) == 0 and report.moved and is_standard_normal(state.w * 0.004)


def test_what_stays_with_the_clients_gets_no_noise_in_a_round_without_clients_either() -> None:
    world = with_norm(buffers="local_norm", method=UNIFORM, aggregation=Private(1.0, 1.0), sampling=Poisson(1e-6))
    with world:
        begun = world.start().w
        state, report = world.round(world.start())
    shared = world.sharing.common_size
    assert len(report.clients) == 0 and torch.equal(state.w[shared:], begun[shared:])
    assert (state.w[:shared] != begun[:shared]).all()


def test_every_round_and_every_seed_draws_anew() -> None:
    rule = Private(1.0, 1.0)
    first = after(still(D, aggregation=rule), 1).w
    second = after(still(D, aggregation=rule), 2).w - first
    other = after(still(D, aggregation=rule, seed=1), 1).w
    for a, b in ((first, second), (first, other), (second, other)):
        assert abs(float(torch.nn.functional.cosine_similarity(a, b, dim=0))) < 5 / math.sqrt(D)


@pytest.mark.parametrize("pieces, engine", rotated([1, 2, 3], ENGINES, turns=2))
def test_it_is_the_same_in_every_engine_and_for_every_number_of_pieces(engine: str, pieces: int) -> None:
    def noise(**more: Any) -> Tensor:
        noisy, plain = (after(federation(method=UNIFORM, aggregation=Private(0.2, z), **more), 1).w for z in (1.0, 0.0))
        return noisy - plain

    assert close(noise(engine=replace(ENGINES[engine], pieces=pieces)), noise(), 1e-15)


@pytest.mark.parametrize(
    "sampling, adaptive",
    rotated([Uniform(3), Poisson(0.3), Poisson(0.6, dropout=0.3)], [None, Adaptive(0.3, 0.5, noise=1.0)], turns=1),
)
def test_private_runs_keep_what_every_federation_keeps(adaptive: Any, sampling: Any) -> None:
    """Workers and a resumed run give the same bytes, stacked clients the same numbers."""
    rule = Private(0.2, 0.7, adaptive)
    check_federation(1e-11, method=UNIFORM, aggregation=rule, sampling=sampling, server=FedAdam(lr=0.02))


def test_a_model_in_float32_stays_one() -> None:
    rule = Private(0.2, 0.7, Adaptive(noise=1.0))
    assert (
        after(federation(model=mlp(dtype=torch.float32), method=UNIFORM, aggregation=rule), 2).w.dtype == torch.float32
    )


def test_the_noise_on_the_counts_takes_its_share_of_the_sums_noise() -> None:
    """Andrew et al. 2021: z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2), the deviation of the sum's noise in units of S."""
    z, sigma, clip, m = 1.2, 0.9, 0.5, 4
    state = after(still(D, aggregation=Private(clip, z, Adaptive(noise=sigma))), 1)
    z_delta = (z**-2 - (2 * sigma) ** -2) ** -0.5
    assert z_delta > 1.3 * z and is_standard_normal(state.w * m / (z_delta * clip))
