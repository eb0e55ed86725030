"""Linear CKA against its invariances, and distances against closed forms."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsash.data.samples import Samples
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.outputs import cka, features, linear_cka, pairwise_cka, spread
from fedsash.vector.layout import Layout
from support.worlds import federation, mlp


def matrix(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def orthogonal(d: int, seed: int) -> Tensor:
    return torch.linalg.qr(matrix(d, d, seed)).Q


seeds = st.integers(0, 10**6)


@given(st.integers(2, 12), st.integers(1, 6), seeds)
def test_the_cka_of_a_matrix_with_itself_is_1(n: int, d: int, seed: int) -> None:
    x = matrix(n, d, seed)
    assert float(linear_cka(x, x)) == pytest.approx(1, abs=1e-12)


@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 6), seeds)
def test_it_lies_between_0_and_1_and_is_symmetric(n: int, d1: int, d2: int, seed: int) -> None:
    x, y = matrix(n, d1, seed), matrix(n, d2, seed + 1)
    assert 0 <= float(linear_cka(x, y)) <= 1 + 1e-12
    assert float(linear_cka(x, y)) == pytest.approx(float(linear_cka(y, x)), abs=1e-12)


@given(seeds, st.sampled_from([1e-3, -2.0, 1e3]))
def test_orthogonal_maps_a_common_factor_and_shifts_change_nothing(seed: int, factor: float) -> None:
    x, y = matrix(20, 5, seed), matrix(20, 3, seed + 1)
    moved = factor * x @ orthogonal(5, seed + 2) + matrix(1, 5, seed + 3)
    assert float(linear_cka(moved, y)) == pytest.approx(float(linear_cka(x, y)), abs=1e-11)
    assert float(linear_cka(moved, x)) == pytest.approx(1, abs=1e-11)


def test_a_general_invertible_map_does_change_it() -> None:
    x = matrix(20, 5)
    assert float(linear_cka(x * torch.tensor([1.0, 1, 1, 1, 100]), x)) < 0.7


@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 6), seeds)
def test_it_is_the_cosine_of_the_centred_gram_matrices(n: int, d1: int, d2: int, seed: int) -> None:
    """trace(K L) / sqrt(trace(K K) * trace(L L)) with K = X X^T and L = Y Y^T, a second account."""
    x, y = matrix(n, d1, seed), matrix(n, d2, seed + 1)
    centre = torch.eye(n, dtype=torch.float64) - 1 / n
    k, gram = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    cosine = (k @ gram).trace() / ((k @ k).trace() * (gram @ gram).trace()).sqrt()
    torch.testing.assert_close(linear_cka(x, y), cosine, rtol=0, atol=1e-10)


def test_for_one_feature_each_it_is_the_squared_correlation() -> None:
    x, y = matrix(15, 1, 1), matrix(15, 1, 2)
    r = torch.corrcoef(torch.cat([x, y], dim=1).T)[0, 1]
    assert float(linear_cka(x, y)) == pytest.approx(float(r**2), abs=1e-14)


def test_orthogonal_features_are_not_alike_and_a_constant_answer_has_no_cka() -> None:
    x = torch.tensor([[1.0], [1], [-1], [-1]], dtype=torch.float64)
    y = torch.tensor([[1.0], [-1], [1], [-1]], dtype=torch.float64)
    assert float(linear_cka(x, y)) == 0
    assert bool(linear_cka(x, torch.full_like(x, 0.5)).isnan())


def test_different_numbers_of_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^linear_cka: y = \(5, 2\): x is \[4, 2\]$"):
        linear_cka(matrix(4, 2), matrix(5, 2))


# --- models -------------------------------------------------------------------------------------------------------


def samples() -> Samples:
    return Samples(matrix(30, 4, seed=9), torch.zeros(30, dtype=torch.int64))


def test_the_matrix_holds_the_cka_of_each_two_client_models() -> None:
    with federation() as f:
        w = client_models(f, f.start()).w
    found, entered = cka(f.model, w, samples()), features(f.model, w, samples())
    assert found.shape == (4, 4)
    pairs = torch.stack([torch.stack([linear_cka(x, y) for y in entered]) for x in entered])
    torch.testing.assert_close(found, pairs, rtol=0, atol=1e-13)
    torch.testing.assert_close(found, found.T, rtol=0, atol=1e-13)
    assert found.diagonal().tolist() == [pytest.approx(1, abs=1e-13)] * 4
    assert 0.5 < float(found.min()) < 1 - 1e-6


def test_permuting_the_hidden_units_moves_the_model_far_but_leaves_its_features_alike() -> None:
    net = mlp()
    layout = Layout(net)
    w = layout.flatten(net)
    order = torch.tensor([3, 7, 1, 0, 6, 2, 5, 4])
    permuted = w.clone()
    own, new = layout.views(w), layout.views(permuted)
    for name in ("0.weight", "0.bias"):
        new[name].copy_(own[name][order])
    new["3.weight"].copy_(own["3.weight"][:, order])
    assert spread(permuted[None], w).largest > 0.5
    assert float(cka(net, torch.stack([w, permuted]), samples())[0, 1]) == pytest.approx(1, abs=1e-13)


def test_another_classifier_on_the_same_features_changes_nothing() -> None:
    net = mlp()
    layout = Layout(net)
    w = layout.flatten(net).expand(2, -1).clone()
    [(start, stop)] = layout.ranges("classifier")
    w[1, start:stop] = matrix(1, stop - start)[0]
    assert float(cka(net, w, samples())[0, 1]) == pytest.approx(1, abs=1e-14)


def test_the_spread_is_the_mean_and_the_largest_distance() -> None:
    centre = torch.tensor([1.0, 1.0], dtype=torch.float64)
    w = centre + torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, -1.0]])
    assert spread(w, centre) == (2.0, 5.0)
    assert spread(centre[None], centre) == (0.0, 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [7, 100, 359])
def test_the_cka_with_a_constant_answer_is_not_a_number(n: int, dtype: torch.dtype) -> None:
    constant, other = torch.tensor([[0.1, 0.7, 0.3]], dtype=dtype).expand(n, 3), matrix(n, 3).to(dtype)
    assert torch.isnan(linear_cka(constant, constant)) and torch.isnan(linear_cka(constant, other))
    found = pairwise_cka(torch.stack([constant, other]))
    assert torch.equal(torch.isnan(found), torch.tensor([[True, True], [True, False]]))
