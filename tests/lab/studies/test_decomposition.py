"""The decomposition of the squared error against its exact identity, its limits, and the definitions spelled out."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.decomposition import (
    Decomposition,
    DecompositionStudy,
    decompose,
    decompose_clients,
    locality,
    union,
)
from fedsash.lab.studies.opened import OpenRun
from fedsash.lab.studies.outputs import outputs
from fedsash.vector.layout import Layout
from support.studies import SAVED, analysis, fedsash
from support.worlds import SIZES, data, federation, mlp

Case = tuple[Tensor, Tensor, Tensor, Tensor]


def case(runs: int, clients: int, n: int, c: int, seed: int, scale: float = 1.0) -> Case:
    """Random predictions, targets, holdings and weights."""
    g = torch.Generator().manual_seed(seed)
    f = scale * torch.randn(runs, clients, n, c, dtype=torch.float64, generator=g)
    y = torch.randn(n, c, dtype=torch.float64, generator=g)
    held = torch.rand(clients, n, generator=g) < 0.4
    p = torch.rand(clients, dtype=torch.float64, generator=g) + 0.05
    return f, y, held, p / p.sum()


cases = st.builds(
    case, st.integers(1, 5), st.integers(1, 6), st.integers(1, 7), st.integers(1, 4), st.integers(0, 10**6),
    st.sampled_from([1e-6, 1.0, 30.0]),
)  # fmt: skip


def squared(v: Tensor) -> Tensor:
    return v.square().sum(-1)


# --- the identity -------------------------------------------------------------------------------------------------


@given(cases)
def test_the_error_of_the_ensemble_is_bias_plus_variance_plus_covariance_for_every_sample(case: Case) -> None:
    found = decompose(*case)
    total = found.bias + found.variance + found.covariance
    torch.testing.assert_close(total, found.error, rtol=1e-12, atol=1e-12)


@given(cases)
def test_the_bias_is_the_squared_sum_of_the_weighted_train_and_heterogeneous_biases(case: Case) -> None:
    """TrainBias_k = 1[in D_k] * (y - E f_k), HeterBias_k = 1[not in D_k] * (y - E f_k); also ||y - E f_W||^2."""
    f, y, held, p = case
    bias = decompose(*case).bias
    distance = y - f.mean(0)
    train, heter = held.unsqueeze(-1) * distance, (~held).unsqueeze(-1) * distance
    torch.testing.assert_close(bias, squared(torch.einsum("k,knc->nc", p, train + heter)), rtol=1e-12, atol=1e-12)
    ensemble = torch.einsum("k,rknc->rnc", p, f)
    torch.testing.assert_close(bias, squared(y - ensemble.mean(0)), rtol=1e-12, atol=1e-12)


def test_it_is_the_theorem_written_out_client_by_client() -> None:
    f, y, held, p = (v.numpy() for v in case(4, 3, 6, 2, seed=1))
    found = decompose(*case(4, 3, 6, 2, seed=1))
    for j in range(6):
        deviation = [[f[r, k, j] - f[:, k, j].mean(0) for k in range(3)] for r in range(4)]
        var = [np.mean([d[k] @ d[k] for d in deviation]) for k in range(3)]
        cov = {(a, b): np.mean([d[a] @ d[b] for d in deviation]) for a, b in itertools.permutations(range(3), 2)}
        assert float(found.variance[j]) == pytest.approx(sum(p[k] ** 2 * var[k] for k in range(3)), abs=1e-14)
        assert float(found.covariance[j]) == pytest.approx(sum(p[a] * p[b] * v for (a, b), v in cov.items()), abs=1e-14)
        error = np.mean([np.sum((y[j] - p @ f[r, :, j]) ** 2) for r in range(4)])
        assert float(found.error[j]) == pytest.approx(error, abs=1e-13)
    for k in range(3):
        distance = ((y - f[:, k].mean(0)) ** 2).sum(-1)
        assert float(found.train_bias[k]) == pytest.approx(distance[held[k]].mean(), abs=1e-13)
        assert float(found.heter_bias[k]) == pytest.approx(distance[~held[k]].mean(), abs=1e-13)


# --- limits and closed forms --------------------------------------------------------------------------------------


def test_one_run_has_neither_variance_nor_covariance() -> None:
    found = decompose(*case(1, 4, 5, 3, seed=2))
    assert not found.variance.any() and not found.covariance.any()
    torch.testing.assert_close(found.bias, found.error, rtol=0, atol=1e-14)


def test_equal_models_are_their_ensemble_and_the_error_is_their_own() -> None:
    f, y, held, p = case(1, 4, 5, 3, seed=3)
    found = decompose(f[:, :1].expand(-1, 4, -1, -1), y, held, p)
    torch.testing.assert_close(found.error, squared(y - f[0, 0]), rtol=0, atol=1e-13)


def test_a_single_client_has_a_train_bias_and_no_heterogeneous_bias_and_no_covariance() -> None:
    f, y, _, _ = case(3, 1, 5, 2, seed=4)
    found = decompose(f, y, torch.ones(1, 5, dtype=torch.bool), torch.ones(1, dtype=torch.float64))
    assert float(found.heter_bias) == 0 and not found.covariance.any()
    torch.testing.assert_close(found.train_bias[0], found.bias.mean(), rtol=0, atol=1e-14)


def test_models_that_vary_together_gain_nothing_from_their_mean() -> None:
    """Fully correlated clients: variance + covariance is the variance of one; Var has the share sum p_k^2 of it."""
    f, y, held, p = case(5, 4, 6, 2, seed=5)
    found = decompose(f[:, :1].expand(-1, 4, -1, -1), y, held, p)
    one = squared(f[:, 0] - f[:, 0].mean(0)).mean(0)
    torch.testing.assert_close(found.variance + found.covariance, one, rtol=0, atol=1e-13)
    torch.testing.assert_close(found.variance, p.square().sum() * one, rtol=0, atol=1e-13)


def test_with_equal_weights_it_is_the_mean_variance_over_k_and_the_mean_covariance() -> None:
    """Var + Cov = (1/K) * mean Var + ((K-1)/K) * mean Cov."""
    f, y, held, _ = case(4, 3, 6, 2, seed=6)
    found = decompose(f, y, held, torch.full((3,), 1 / 3, dtype=torch.float64))
    d = f - f.mean(0)
    gram = torch.einsum("rknc,rlnc->kln", d, d) / 4
    var = gram.diagonal().mean(-1)
    cov = (gram.sum((0, 1)) - 3 * var) / 6
    torch.testing.assert_close(found.variance + found.covariance, var / 3 + cov * 2 / 3, rtol=0, atol=1e-13)


def test_opposite_clients_cancel_their_variance() -> None:
    g = torch.randn(4, 1, 6, 2, dtype=torch.float64)
    g = g - g.mean(0)
    found = decompose(torch.cat([g, -g], dim=1), torch.zeros(6, 2), torch.ones(2, 6).bool(), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(found.variance, -found.covariance, rtol=0, atol=1e-15)
    assert float(found.error.max()) < 1e-30


def test_the_order_of_the_clients_does_not_matter() -> None:
    f, y, held, p = case(3, 4, 5, 2, seed=7)
    order = torch.tensor([2, 0, 3, 1])
    a, b = decompose(f, y, held, p), decompose(f[:, order], y, held[order], p[order])
    for field in ("error", "bias", "variance", "covariance"):
        torch.testing.assert_close(getattr(a, field), getattr(b, field), rtol=0, atol=1e-13)
    torch.testing.assert_close(a.train_bias[order], b.train_bias, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "field, value",
    [
        ("f", torch.zeros(3, 4, 5)),
        ("f", torch.zeros(0, 4, 5, 2)),
        ("y", torch.zeros(5)),
        ("held", torch.ones(4, 5)),
        ("held", torch.ones(5, 4).bool()),
        ("p", torch.ones(4)),
    ],
)
def test_what_does_not_fit_is_refused_by_name(field: str, value: Tensor) -> None:
    given = dict(zip(("f", "y", "held", "p"), case(3, 4, 5, 2, seed=8), strict=True)) | {field: value}
    with pytest.raises(ValueError, match=f"^decompose: {field} = "):
        decompose(**given)


# --- models of a federation ---------------------------------------------------------------------------------------


def test_the_union_holds_every_sample_once_and_says_who_holds_it() -> None:
    world = replace(data(), clients=[[0, 1, 1], [1, 2], [9, 4]])
    samples, held = union(world, [0, 1])
    assert torch.equal(samples.x, world.train.x[[0, 1, 2]])
    assert held.tolist() == [[True, True, False], [False, True, True]]


def test_the_decomposition_of_a_rounds_client_models_obeys_the_identity() -> None:
    """Runs are seeds: of the batches and of who takes part, from one start; all clients take part."""
    everyone = np.arange(len(SIZES))
    runs = []
    for seed in range(3):
        with federation(seed=seed, sampling=replace(federation().sampling, count=len(SIZES))) as f:
            runs.append(client_models(f, f.start()).w)
    w = torch.stack(runs)
    found = decompose_clients(f.model, w, f.data, everyone)
    assert isinstance(found, Decomposition) and found.error.shape == (sum(SIZES),)
    torch.testing.assert_close(found.bias + found.variance + found.covariance, found.error, rtol=0, atol=1e-14)
    assert all(bool(torch.isfinite(v).all()) for v in (getattr(found, d.name) for d in dataclasses.fields(found)))
    assert float(found.variance.mean()) > 0 and bool((found.train_bias < found.heter_bias).any())


def test_its_error_is_the_brier_score_of_the_ensemble_weighted_by_samples() -> None:
    net, world, ids = mlp(), data(), [1, 3, 5]
    w = Layout(net).flatten(net) + 0.3 * torch.randn(1, 3, Layout(net).size, dtype=torch.float64)
    samples, _ = union(world, ids)
    n = torch.tensor([SIZES[i] for i in ids], dtype=torch.float64)
    ensemble = torch.einsum("k,knc->nc", n / n.sum(), outputs(net, w[0], samples).softmax(-1))
    right = torch.eye(3, dtype=torch.float64)[samples.y]
    found = decompose_clients(net, w, world, ids)
    torch.testing.assert_close(found.error, squared(right - ensemble), rtol=0, atol=1e-14)


def test_locality_is_0_for_equal_models_and_the_closed_form_for_two() -> None:
    """Two models at distance d with weights p and 1 - p lie (1 - p) d and p d from their mean."""
    one = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert locality(one.expand(4, -1), torch.full((4,), 0.25)) == (0.0, 0.0)
    two = torch.stack([one, one + torch.tensor([3.0, 0.0, 4.0])])
    mean, largest = locality(two, torch.tensor([0.2, 0.8], dtype=torch.float64))
    assert (mean, largest) == (pytest.approx(2.5, abs=1e-14), pytest.approx(4.0, abs=1e-14))


def test_the_error_of_the_mean_model_is_the_ensembles_up_to_the_square_of_the_locality() -> None:
    """The lemma: halving the distances of the clients from their mean divides the gap by four."""
    net, world, ids = mlp(), data(), range(len(SIZES))
    samples, _ = union(world, ids)
    right = torch.eye(3, dtype=torch.float64)[samples.y]
    base = Layout(net).flatten(net)
    offsets = torch.randn(len(SIZES), len(base), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)

    def gap(scale: float) -> float:
        w = base + scale * offsets
        f = outputs(net, p @ w, samples).softmax(-1)
        return float((squared(right - f) - decompose_clients(net, w[None], world, ids).error).mean())

    ratios = [gap(scale) / gap(scale / 2) for scale in (0.02, 0.01, 0.005)]
    assert ratios == [pytest.approx(4.0, rel=bound) for bound in (0.2, 0.1, 0.05)]


# --- in a run -----------------------------------------------------------------------------------------------------


def test_the_squared_error_is_bias_plus_variance_plus_covariance(runs: list[Path]) -> None:
    assert fedsash("decompose", *runs, "--rounds", "3,5", "--samples", 200, "--name", "three") == 0
    found = analysis(runs[0], "three")
    assert found["runs"] == 3 and found["rounds"] == [3, 5]
    parts = np.array([found[name] for name in ("bias", "variance", "covariance")])
    np.testing.assert_allclose(parts.sum(0), found["squared_error"], rtol=1e-12)
    assert min(found["variance"]) > 0
    assert all(a > b > 0 for a, b in zip(found["locality_max"], found["locality_mean"], strict=True))
    assert all(0 < cka < 1 for cka in found["cka"])


def test_a_run_alone_has_bias_alone_and_beside_itself_neither_variance_nor_covariance(opened: OpenRun) -> None:
    alone, twice = (DecompositionStudy(samples=100).write([opened] * n, "x") for n in (1, 2))
    assert alone["rounds"] == SAVED
    assert alone["squared_error"] == pytest.approx(alone["bias"], rel=1e-12)
    assert alone["variance"] == alone["covariance"] == [None] * len(SAVED)
    assert twice["squared_error"] == pytest.approx(alone["squared_error"], rel=1e-12)
    assert twice["variance"] == twice["covariance"] == [0] * len(SAVED)
