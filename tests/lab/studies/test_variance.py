"""Variance and covariance by the number of models: IMA's Corollary 1 against hand arithmetic, and in runs."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsash.lab.studies.decomposition import DecompositionStudy, decompose
from fedsash.lab.studies.opened import open_run
from fedsash.lab.studies.variance import Group, VarianceStudy, covariance_bound, covariances, label_mmd
from support.studies import analysis, fedsash, refused

SEEDS = st.integers(0, 10**6)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weights(clients: int, seed: int) -> Tensor:
    p = torch.rand(clients, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.05
    return p / p.sum()


def test_covariances_are_those_of_the_theorem_by_hand() -> None:
    """Two runs, two models, one sample of one output: deviations ±1 and ∓3 from the means 1 and 4."""
    f = torch.tensor([[[[2.0]], [[1.0]]], [[[0.0]], [[7.0]]]], dtype=torch.float64)
    assert covariances(f).tolist() == [[1, -3], [-3, 9]]


@given(st.integers(1, 5), st.integers(1, 6), SEEDS)
def test_weighted_they_are_the_variance_and_the_covariance_of_the_decomposition(runs: int, k: int, seed: int) -> None:
    f, p = random(runs, k, 4, 3, seed=seed), weights(k, seed)
    between = covariances(f)
    parts = decompose(f, random(4, 3), torch.ones(k, 4, dtype=torch.bool), p)
    variance = p.square() @ between.diagonal()
    torch.testing.assert_close(parts.variance.mean(), variance, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(parts.covariance.mean(), p @ between @ p - variance, rtol=1e-12, atol=1e-14)


def test_with_equal_weights_the_bound_is_that_of_corollary_1_by_hand() -> None:
    """Three models with covariances 2, -1 and 5: (2/3) * (-1), below (1/9) * 2 * (2 - 1 + 5) = 4/3."""
    between = torch.tensor([[9.0, 2, -1], [2, 9, 5], [-1, 5, 9]], dtype=torch.float64)
    p = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert covariance_bound(between, p) == pytest.approx(-2 / 3, abs=1e-15)
    assert float(p @ between @ p - p.square() @ between.diagonal()) == pytest.approx(4 / 3, abs=1e-15)


def test_with_unequal_weights_the_bound_has_what_the_squares_leave_by_hand() -> None:
    """Weights 0.5, 0.3, 0.2: 1 - 0.38 = 0.62 of the smallest covariance."""
    between = torch.tensor([[9.0, 2, 4], [2, 9, 5], [4, 5, 9]], dtype=torch.float64)
    assert covariance_bound(between, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)) == pytest.approx(1.24)


@given(st.integers(2, 5), st.integers(2, 6), SEEDS)
def test_the_covariance_is_never_below_its_bound(runs: int, k: int, seed: int) -> None:
    between, p = covariances(random(runs, k, 3, 2, seed=seed)), weights(k, seed)
    covariance = p @ between @ p - p.square() @ between.diagonal()
    assert float(covariance) >= covariance_bound(between, p) - 1e-12


@given(st.integers(2, 6), st.floats(-0.1, 0.9), SEEDS)
def test_equal_covariances_reach_the_bound_whatever_the_weights(k: int, cov: float, seed: int) -> None:
    between, p = torch.full((k, k), cov, dtype=torch.float64), weights(k, seed)
    covariance = float(p @ between @ p - p.square() @ between.diagonal())
    assert covariance == pytest.approx(covariance_bound(between, p), abs=1e-14)


def test_one_model_has_no_covariance_to_bound() -> None:
    assert covariance_bound(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)) == 0


def test_over_all_groups_the_variance_of_k_models_with_equal_weights_is_the_mean_of_one_over_k() -> None:
    y, held = random(5, 2, seed=1), torch.ones(4, 5, dtype=torch.bool)
    group = Group(random(3, 4, 5, 2), y, held, torch.full((4,), 0.25, dtype=torch.float64))
    whole = float(group.covariances.diagonal().mean())
    for k in range(1, 5):
        groups = [np.array(members) for members in combinations(range(4), k)]
        _, _, variance, equal, _, _ = np.mean([group.numbers(members) for members in groups], axis=0)
        assert variance == pytest.approx(whole / k, rel=1e-12) == equal


def test_a_group_weighs_its_models_by_their_shares_of_its_weight() -> None:
    """Of weights 0.1, 0.3, 0.6 the first two have 1/4 and 3/4: squares of 10/16."""
    apart = torch.tensor([1.0, -1.0], dtype=torch.float64).view(2, 1, 1, 1)
    f = apart.expand(2, 3, 1, 1)
    p = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
    group = Group(f, torch.zeros(1, 1, dtype=torch.float64), torch.ones(3, 1, dtype=torch.bool), p)
    error, bias, variance, equal, covariance, bound = group.numbers(np.array([0, 1]))
    assert (error, bias) == (pytest.approx(1), 0)
    assert (variance, covariance, bound) == (pytest.approx(10 / 16), pytest.approx(6 / 16), pytest.approx(6 / 16))
    assert equal == pytest.approx(1 / 2) and variance > equal


def test_the_labels_mmd_is_the_squared_distance_of_the_shares_by_hand() -> None:
    """Labels 0, 0, 1, 1: who holds both zeros is at (1 - 1/2)^2 + (0 - 1/2)^2, who holds one of each at 0."""
    y = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]], dtype=torch.float64)
    held = torch.tensor([[True, True, False, False], [True, False, True, False]])
    assert label_mmd(y, held).tolist() == [0.5, 0.0]


# --- in runs ------------------------------------------------------------------------------------------------------


def test_with_all_clients_it_is_the_decomposition_and_clients_of_equal_size_have_the_falling_variance(
    runs: list[Path],
) -> None:
    opened = [open_run(run) for run in runs]
    found = VarianceStudy(rounds=(3, 5), orders=3).measure(opened)
    whole = DecompositionStudy(rounds=(3, 5)).measure(opened)
    for name in ("squared_error", "bias", "variance", "covariance"):
        assert [by_size[-1] for by_size in found[name]] == pytest.approx(whole[name], rel=1e-9)
    for i in range(2):
        assert len(found["variance"][i]) == 3
        assert all(c >= b for c, b in zip(found["covariance"][i], found["bound"][i], strict=True))
        np.testing.assert_allclose(found["variance"][i], found["equal"][i], rtol=0.02)
        assert found["covariance"][i][0] == found["bound"][i][0] == 0
        total = np.sum([found[name][i] for name in ("bias", "variance", "covariance")], axis=0)
        np.testing.assert_allclose(total, found["squared_error"][i], rtol=1e-9)


def test_the_command_writes_table_pictures_and_numbers(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert fedsash("variance", *runs, "--rounds", "3", "--orders", 2, "--samples", 50, "--name", "v") == 0
    assert "lower" in capsys.readouterr().out
    found = analysis(runs[0], "v")
    assert found["runs"] == 3 and len(found["ids"][0]) == len(found["variances"][0]) == len(found["distances"][0]) == 3
    assert (runs[0] / "analyses" / "v.png").exists()


def test_a_run_of_another_rate_is_not_one_of_them(run: Path, runs: list[Path], capsys: Any) -> None:
    config = run / "config.toml"
    config.write_text(re.sub(r"(?m)^lr = [\d.e-]+$", "lr = 0.0123", config.read_text(), count=1))
    assert "has other settings than" in (said := refused(capsys, "variance", runs[0], run)) and "local.lr" in said


@pytest.mark.parametrize(
    ("settings", "other"),
    [(["broadcast=w"], "averages.w.size"), (['broadcast={average="w", start="auto"}'], "evaluation.every")],
)
def test_what_a_broadcast_sends_and_what_decides_on_it_acts_on_the_training(
    settings: list[str], other: str, runs: list[Path], tmp_path: Path, capsys: Any
) -> None:
    """Without a broadcast averages and evaluations only observe, and may differ."""
    more = [*settings, "rounds=1", "evaluation.held_out=0.2"]
    for name, changed in {"a": 3, "b": 2}.items():
        sets = [word for text in [*more, f"{other}={changed}"] for word in ("--set", text)]
        experiment = runs[0].parent / "experiment.toml"
        assert fedsash("run", experiment, "--out", tmp_path / name, "--own-code", "--no-progress", *sets) == 0
    assert f"has other settings than {tmp_path / 'a'}: {other};" in refused(
        capsys, "variance", tmp_path / "a", tmp_path / "b"
    )


def test_a_run_whose_partition_has_the_same_seed_by_another_setting_is_one_of_them(run: Path, runs: list[Path]) -> None:
    """The clients' samples decide, not where the seed that drew them is written."""
    config = run / "config.toml"
    config.write_text(f"partition_seed = 0\n{config.read_text()}")
    assert fedsash("variance", run, runs[1], "--rounds", "3", "--orders", 1, "--samples", 20) == 0


def test_findings_of_other_runs_have_files_of_their_own(run: Path, runs: list[Path]) -> None:
    for other in runs[1:]:
        assert fedsash("decompose", run, other, "--rounds", "3", "--samples", 20) == 0
    assert len(list((run / "analyses").glob("decomposition_2-runs-*.json"))) == 2


def test_a_run_with_the_seed_of_another_is_no_repetition(run: Path, runs: list[Path], capsys: Any) -> None:
    line = f"{run}: has the seed of {runs[0]}, 0: a repetition needs another one"
    assert line in refused(capsys, "variance", runs[0], runs[1], run)
    assert f"{run}: has the seed of {run}, 0" in refused(capsys, "decompose", run, run)


def test_one_run_alone_has_no_variance(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "runs = 1: the variance is that over several runs" in refused(capsys, "variance", run)
    assert "--orders = 0: must be" in refused(capsys, "variance", run, run, "--orders", 0)
