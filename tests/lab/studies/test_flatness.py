"""Curvature against dense Hessians, and flatness against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from fedsash.data.federated import FederatedData
from fedsash.evaluation import Curvature
from fedsash.lab.studies.flatness import FlatnessStudy, hessian_eigenvalues, lanczos, sharpness
from fedsash.lab.studies.opened import OpenRun
from fedsash.models import build
from fedsash.vector.layout import Layout
from support.norms import batch_norm_model
from support.studies import analysis, fedsash
from support.worlds import data, mlp

LAYOUT = Layout(mlp())
W = LAYOUT.flatten(mlp())


def curvature(batch: int = 500) -> Curvature:
    world = data()
    return Curvature(mlp(dropout=0.5), world, world.train, batch=batch)


def dense(w: Tensor) -> Tensor:
    """The whole Hessian `[D, D]`, by a function of the whole data."""
    module, world = mlp(), data()

    def loss(w: Tensor) -> Tensor:
        return world.problem.task.loss(functional_call(module, LAYOUT.views(w), (world.train.x,)), world.train.y).mean()

    return torch.func.hessian(loss)(w)


class Free(nn.Module):
    """A model whose only parameter is a point `w` `[D]`; it answers with it, whatever the sample."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.w.expand(len(x), -1)


def quadratic(H: Tensor, b: Tensor) -> Curvature:
    """The loss 1/2 w'Hw + b'w."""
    world = FederatedData.from_arrays(np.ones((1, 1)), [0], [[0]], classes=2)
    return Curvature(Free(len(b)), world, world.train, lambda w, y: 0.5 * ((w @ H) * w).sum(1) + w @ b)


def matrix(eigenvalues: list[float], seed: int = 0) -> Tensor:
    """A symmetric matrix with these eigenvalues, in a random basis."""
    n = len(eigenvalues)
    rng = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=rng))[0]
    return q @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ q.T


def times(H: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda v: H @ v


@pytest.mark.parametrize("batch", [1, 7, 500])
def test_products_are_those_with_the_dense_hessian_whatever_the_batch(batch: int) -> None:
    v = torch.linspace(-1, 1, LAYOUT.size, dtype=torch.float64)
    torch.testing.assert_close(curvature(batch).hessian_times(W, v), dense(W) @ v, rtol=0, atol=1e-14)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    L, v, h = curvature(), torch.linspace(-1, 1, LAYOUT.size, dtype=torch.float64), 1e-5
    slope = (L.loss(W + h * v) - L.loss(W - h * v)) / (2 * h)
    assert float(L.gradient(W) @ v) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_lanczos_finds_the_largest_eigenvalues_of_the_dense_hessian(k: int) -> None:
    exact = torch.linalg.eigvalsh(dense(W)).flip(0)[:k].numpy()
    found = hessian_eigenvalues(curvature(), W, k=k, tolerance=1e-6)
    np.testing.assert_allclose(found.values, exact, atol=1e-8)
    assert found.within(1e-6) and k <= found.products <= LAYOUT.size


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 1000))
def test_given_the_whole_space_lanczos_finds_any_spectrum(spectrum: list[float], k: int, seed: int) -> None:
    k = min(k, len(spectrum))
    found = lanczos(times(matrix(spectrum, seed)), torch.zeros(len(spectrum)).double(), k, tolerance=0, seed=seed)
    np.testing.assert_allclose(found.values, sorted(spectrum, reverse=True)[:k], atol=1e-8)


def test_every_value_lies_within_its_residual_of_an_eigenvalue_wherever_lanczos_stops() -> None:
    spectrum = np.linspace(-3, 5, 60) ** 3
    H = matrix(spectrum.tolist())
    for steps in (3, 6, 12, 24, 48):
        found = lanczos(times(H), H[0], k=3, tolerance=0, steps=steps)
        assert found.products == steps
        distance = np.abs(found.values[:, None] - spectrum[None]).min(axis=1)
        assert (distance <= found.residuals + 1e-10).all()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 30])
def test_of_a_matrix_of_low_rank_the_other_eigenvalues_are_zero(k: int) -> None:
    spectrum = [4.0, 2.0, 1.0] + [0.0] * 27
    H = matrix(spectrum)
    found = lanczos(times(H), H[0], k=k)
    np.testing.assert_allclose(found.values, spectrum[:k], atol=1e-12)
    assert found.products <= max(k, 4) + 3


@pytest.mark.parametrize("eigenvalue", [-2.0, 0.0, 3.0])
def test_a_multiple_of_the_identity_has_one_eigenvalue_as_often_as_asked(eigenvalue: float) -> None:
    found = lanczos(lambda v: eigenvalue * v, W, k=3)
    np.testing.assert_allclose(found.values, [eigenvalue] * 3, atol=1e-14)


def test_a_double_eigenvalue_is_found_behind_a_closed_space() -> None:
    H = matrix([3.0, 3.0] + [1.0] * 8)
    np.testing.assert_allclose(lanczos(times(H), H[0], k=3).values, [3, 3, 1], atol=1e-12)


def test_largest_means_most_positive() -> None:
    H = matrix([-50.0, -20.0, 1.0, 0.5, -1.0])
    np.testing.assert_allclose(lanczos(times(H), H[0], k=2).values, [1.0, 0.5], atol=1e-10)


def test_a_loss_that_is_linear_in_the_model_has_no_curvature() -> None:
    b = torch.tensor([1.0, 2.0, 2.0]).double()
    flat = quadratic(torch.zeros(3, 3).double(), b)
    assert not flat.hessian_times(b, b).any()
    assert hessian_eigenvalues(flat, b, k=2).values.tolist() == [0, 0]
    assert sharpness(flat, b, rho=0.5) == pytest.approx(0.5 * 3, abs=1e-14)


def test_the_library_lstm_can_be_differentiated_twice_on_a_cpu() -> None:
    module = build("shakespeare_lstm", {"width": 5}, shape=(5,), classes=9, seed=0).double()
    x = torch.randint(9, (4, 5), generator=torch.Generator().manual_seed(0)).numpy()
    world = FederatedData.from_arrays(x, x[:, 0], [range(4)], classes=9)
    look = Curvature(module, world, world.train, lambda output, y: nn.functional.cross_entropy(output[:, -1], y))
    w, h = Layout(module).flatten(module), 1e-5
    v = torch.linspace(-1, 1, len(w), dtype=torch.float64)
    difference = (look.gradient(w + h * v) - look.gradient(w - h * v)) / (2 * h)
    assert float(difference.abs().max()) > 1e-2
    torch.testing.assert_close(look.hessian_times(w, v), difference, rtol=0, atol=1e-6)


def test_attention_can_be_differentiated_twice() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x).view(1, 1, -1, 4)
            return nn.functional.scaled_dot_product_attention(q, q, q).view(-1, 4)

    module, world = Attends().double(), data()
    layout, v = Layout(module), torch.linspace(-1, 1, 20, dtype=torch.float64)
    look, w, h = Curvature(module, world, world.train), layout.flatten(module), 1e-5
    difference = (look.gradient(w + h * v) - look.gradient(w - h * v)) / (2 * h)
    torch.testing.assert_close(look.hessian_times(w, v), difference, rtol=0, atol=1e-8)


def test_sharpness_of_one_step_is_a_quadratics_rise_along_the_gradient() -> None:
    H, b, rho = matrix([5.0, 1.0, -2.0]), torch.tensor([1.0, -1.0, 0.5]).double(), 0.3
    w = torch.tensor([0.2, 0.1, -0.4]).double()
    g = H @ w + b
    rise = rho * g.norm() + rho**2 / 2 * (g @ H @ g) / (g @ g)
    assert sharpness(quadratic(H, b), w, rho) == pytest.approx(float(rise), abs=1e-14)


def test_at_a_quadratics_minimum_ascent_finds_the_largest_eigenvalue() -> None:
    """There the rise is rho^2/2 * d'Hd, largest along the first eigenvector."""
    look, w = quadratic(matrix([5.0, 1.0, 0.5, 0.0]), torch.zeros(4).double()), torch.zeros(4).double()
    assert sharpness(look, w, rho=0.1, steps=30) == pytest.approx(0.1**2 / 2 * 5, abs=1e-14)


def test_more_steps_of_ascent_never_find_less_and_never_more_than_a_quadratics_bound() -> None:
    H, b, rho = matrix([5.0, 3.0, 1.0]), torch.tensor([0.1, -0.1, 0.1]).double(), 0.5
    w = torch.zeros(3).double()
    found = [sharpness(quadratic(H, b), w, rho, steps) for steps in range(1, 12)]
    assert found == sorted(found)
    assert found[-1] <= rho * float(b.norm()) + rho**2 / 2 * 5


def test_wrong_settings_are_refused_in_one_line() -> None:
    look = quadratic(torch.eye(2).double(), torch.ones(2).double())
    w = torch.zeros(2).double()
    for wrong in ({"k": 0}, {"k": 3}, {"k": 2, "steps": 1}):
        with pytest.raises(ValueError, match="lanczos: "):
            hessian_eigenvalues(look, w, **wrong)
    for wrong_too in ({"rho": 0.0}, {"rho": float("inf")}, {"steps": 0}):
        with pytest.raises(ValueError, match="sharpness: "):
            sharpness(look, w, **wrong_too)


def test_a_model_that_diverged_has_no_flatness() -> None:
    w = torch.zeros(2).double()
    look = quadratic(torch.full((2, 2), float("nan")).double(), w)
    with pytest.raises(ValueError, match="lanczos: H v = nan: must be finite"):
        hessian_eigenvalues(look, w)
    with pytest.raises(ValueError, match="sharpness: norm of the gradient = nan: must be finite"):
        sharpness(look, w)


# --- in a run -----------------------------------------------------------------------------------------------------


def test_sharpness_grows_with_the_distance_and_eigenvalues_fall(runs: list[Path], opened: OpenRun) -> None:
    options = ["--eigenvalues", 2, "--rho", "0.001,0.01", "--samples", 50, "--name", "flat"]
    assert fedsash("flatness", runs[0], "--models", "model", *options) == 0
    found = analysis(runs[0], "flat")
    assert found["samples"] == 50 and found["split"] == "train" and list(found["models"]) == ["model"]
    (first, second), rises = found["models"]["model"]["eigenvalues"], found["models"]["model"]["sharpness"]
    assert first >= second and 0 < rises["0.001"] < rises["0.01"]
    ticks: list[tuple[int, int]] = []
    study = FlatnessStudy(("model",), samples=50, eigenvalues=1)
    study.write([opened], "x", progress=lambda *tick: ticks.append(tick))
    assert ticks == sorted(ticks) and ticks[-1] == (100, 100)


def test_eigenvalues_after_too_few_products_are_too_low_and_marked() -> None:
    spectrum = np.linspace(0, 1, 400)
    H = matrix(spectrum.tolist())
    found = lanczos(times(H), H[0], k=20, steps=40)
    exact = spectrum[::-1][:20]
    count = found.converged(1e-3)
    assert count < 20 and (found.values <= exact + 1e-12).all()
    assert np.abs(found.values[:count] - exact[:count]).max(initial=0) <= 1e-3
    model = {"eigenvalues": found.values.tolist(), "converged": count, "sharpness": {"0.05": 1.0}}
    content = {"kind": "flatness", "title": "t", "split": "test", "samples": 1, "models": {"w": model}}
    cells = [*FlatnessStudy.table(content)][1][1].split()
    assert [cell.startswith("\N{GREATER-THAN OR EQUAL TO}") for cell in cells] == [i >= count for i in range(20)]
    assert f"eigenvalues of w's after number {count}" in (FlatnessStudy.picture(content).caption or "")


def test_statistics_of_batchnorm_are_constants_of_the_loss() -> None:
    """The derivatives by the parameters are autograd's in eval mode, those by the statistics 0."""
    world, model = data((20,)), batch_norm_model()
    layout, loss = Layout(model), Curvature(model, world, world.train)
    w, v = layout.flatten(model), torch.randn(layout.size, dtype=torch.float64)
    model.eval()
    assert isinstance(world.train.x, torch.Tensor)
    torch.nn.functional.cross_entropy(model(world.train.x), world.train.y).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    found, step = loss.gradient(w), 1e-5
    assert float(found[layout.trained :].abs().sum()) == 0
    torch.testing.assert_close(found[: layout.trained].sort().values, expected.sort().values)
    v[layout.trained :] = 0
    numeric = (loss.gradient(w + step * v) - loss.gradient(w - step * v)) / (2 * step)
    torch.testing.assert_close(loss.hessian_times(w, v), numeric, atol=1e-7, rtol=1e-6)
