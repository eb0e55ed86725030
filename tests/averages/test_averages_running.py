"""Averages after the fact: windows from running sums, exactly; EMAs from blocks, within what their profile says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.averages import EMA, Window
from fedsash.averages.afterwards import SUM, RunningSum, combined
from fedsash.averages.profiles import FLATTEST, Profile, block_weights, decay_of, ema, exponent, misplaced, power
from fedsash.vector.pieces import Pieces
from support.by_default import some
from support.trajectories import Alone

DECAYS = [0.0, 0.5, 0.9, 0.95, 0.99]


def walk(n: int, seed: int = 0) -> Tensor:
    """Models that move at random: `[n, 7]`."""
    return torch.randn(n, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).cumsum(0)


def sums_of(models: Tensor, counts: list[int]) -> list[RunningSum]:
    """The running sums of the first models, for each of these numbers of them."""
    state, found = SUM.init(models[0]), {0: RunningSum.empty(models.shape[1])}
    for round, w in enumerate(models, 1):
        SUM.take(state, Pieces.of(w), round, {})
        found[round] = RunningSum(state["high"].clone(), state["low"].clone(), int(state["seen"]))
    return [found[count] for count in counts]


def stand_in(models: Tensor, profile: Profile, counts: list[int]) -> Tensor:
    (made,) = combined(sums_of(models, counts), block_weights(profile, counts)[None], models[0])
    return made


# --- windows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", some([1, 3, 20, 59], 59))
def test_the_difference_of_two_sums_is_the_windows_value_bitwise(size: int, dtype: torch.dtype) -> None:
    models = walk(60).to(dtype)
    window = Alone(Window(size), models[0])
    for round, w in enumerate(models, 1):
        window.observe(w, round)
        if round >= size:
            before, after = sums_of(models[:round], [round - size, round])
            assert torch.equal(after.mean_since(before, models[0]), window.value(w))


def test_a_window_is_exact_after_values_a_billion_times_larger_have_passed() -> None:
    models = walk(40)
    models[5:10] *= 1e9
    before, after = sums_of(models, [20, 40])
    torch.testing.assert_close(after.mean_since(before, models[0]), models[20:].mean(0), rtol=1e-14, atol=1e-14)


def test_what_is_computed_leaves_the_sums_as_they_are() -> None:
    before, after = sums_of(walk(9), [4, 9])
    kept = after.high.clone(), after.low.clone(), before.high.clone(), before.low.clone()
    after.mean_since(before, after.high)
    assert all(map(torch.equal, (after.high, after.low, before.high, before.low), kept))


# --- profiles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", DECAYS)
def test_the_profile_of_an_ema_is_what_it_makes_of_unit_vectors(decay: float) -> None:
    units = torch.eye(30, dtype=torch.float64)
    average = Alone(EMA(decay), units[0])
    for round, w in enumerate(units, 1):
        average.observe(w, round)
    np.testing.assert_allclose(ema(decay, 30), average.value(units[0]), rtol=0, atol=1e-15)


@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.25, FLATTEST])
def test_the_profile_of_a_power_function_is_what_the_papers_update_makes_of_unit_vectors(sigma: float) -> None:
    gamma, mean = exponent(sigma), np.zeros(30)
    for t, w in enumerate(np.eye(30), 1):
        beta = (1 - 1 / t) ** (gamma + 1)
        mean = beta * mean + (1 - beta) * w
    np.testing.assert_allclose(power(sigma, 30), mean, rtol=0, atol=1e-15)


@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.25, FLATTEST])
def test_sigma_rel_is_the_standard_deviation_of_its_profile(sigma: float) -> None:
    p, t = power(sigma, 20_000), (np.arange(20_000) + 0.5) / 20_000
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert np.sqrt(p @ (t - p @ t) ** 2) == pytest.approx(sigma, rel=1e-4)


def test_the_flattest_power_function_is_the_mean_of_all() -> None:
    np.testing.assert_allclose(power(FLATTEST, 10), np.full(10, 0.1), atol=1e-12)


def test_an_ema_is_as_long_as_the_window_with_the_same_sum_of_squared_weights() -> None:
    for size in (2, 10, 50):
        assert 1 / (ema(decay_of(size), 5000) ** 2).sum() == pytest.approx(size, rel=1e-12)


# --- EMAs from blocks ---------------------------------------------------------------------------------------------

PROFILES = [*(ema(decay, 60) for decay in DECAYS), power(0.05, 60), power(0.2, 60)]
COUNTS = [[0, 60], list(range(0, 61, 10)), [0, 1, 4, 30, 45, 52, 60], list(range(61))]


@pytest.mark.parametrize("counts", COUNTS, ids=len)
@pytest.mark.parametrize("profile", PROFILES, ids=range(len(PROFILES)))
def test_the_weights_of_blocks_are_those_of_least_squares(profile: Profile, counts: list[int]) -> None:
    blocks = np.zeros((60, len(counts) - 1))
    for j, (first, last) in enumerate(pairwise(counts)):
        blocks[first:last, j] = 1 / (last - first)
    np.testing.assert_allclose(block_weights(profile, counts), np.linalg.lstsq(blocks, profile)[0], atol=1e-12)


@pytest.mark.parametrize("counts", COUNTS, ids=len)
@pytest.mark.parametrize("profile", PROFILES, ids=range(len(PROFILES)))
def test_a_stand_in_errs_by_at_most_its_profiles_error_times_the_width_of_a_block(
    profile: Profile, counts: list[int]
) -> None:
    for seed in range(3):
        models = walk(60, seed)
        real = torch.from_numpy(profile) @ models
        widths = [float(torch.cdist(block, block).max()) for block in torch.tensor_split(models, counts[1:-1])]
        away = float(torch.linalg.vector_norm(stand_in(models, profile, counts) - real))
        assert away <= misplaced(profile, counts) * max(widths) + 1e-13


def test_the_bound_is_reached_where_two_models_of_a_block_differ() -> None:
    models = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    profile = ema(0.25, 2)
    away = abs(stand_in(models, profile, [0, 2]) - torch.from_numpy(profile) @ models)
    assert float(away) == misplaced(profile, [0, 2]) == 0.25


@pytest.mark.parametrize("profile", PROFILES, ids=range(len(PROFILES)))
def test_blocks_of_one_model_give_the_ema_itself(profile: Profile) -> None:
    models, counts = walk(60), list(range(61))
    assert misplaced(profile, counts) < 1e-14
    torch.testing.assert_close(
        stand_in(models, profile, counts), torch.from_numpy(profile) @ models, rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("k", [2, 4, 10, 20])
def test_the_error_of_an_ema_is_proportional_to_the_blocks(k: int) -> None:
    """k (1 - decay) / 8 where that is small; after so many models the first one has no weight left."""
    n, decay = 4000, 0.995
    assert misplaced(ema(decay, n), list(range(0, n + 1, k))) == pytest.approx(k * (1 - decay) / 8, rel=0.01)


@pytest.mark.parametrize("sigma", [0.0, -0.1, 0.3, float("nan")])
def test_a_sigma_rel_that_no_power_function_has_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"^sigma_rel = .*must be above 0 and at most 0.2887"):
        power(sigma, 10)
