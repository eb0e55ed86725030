"""The factors of the averaged model's error that `benchmarks/factors.py` measures, in float64."""

from __future__ import annotations

import pytest
import torch
from benchmarks.factors import Answers, product_of_means

RNG = torch.Generator().manual_seed(0)


def random(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=RNG, dtype=torch.float64)


def some_answers() -> Answers:
    """Random answers of 4 clients, the first of which holds most images, in 4 trainings."""
    held = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]).bool()
    p = torch.tensor([0.4, 0.2, 0.2, 0.2], dtype=torch.float64)
    return Answers(random(4, 4, 5, 2), random(5, 2), held, p, random(4, 5, 2))


def test_the_factors_are_the_averaged_models_error() -> None:
    answers = some_answers()
    whole = (answers.y - answers.of_means).square().sum(-1).mean()
    assert sum(answers.factors().values()) == pytest.approx(float(whole), abs=1e-12)


def test_a_product_of_means_is_that_over_pairs_of_different_trainings() -> None:
    a, b = random(3, 5, 2), random(3, 5, 2)
    pairs = [float((a[r] * b[s]).sum(-1).mean()) for r in range(3) for s in range(3) if r != s]
    assert product_of_means(a, b) == pytest.approx(sum(pairs) / 6, abs=1e-12)


def test_the_least_covariance_of_independent_clients_is_not_below_zero_on_average() -> None:
    """The least of 45 estimates is; that of the pair which another half of the trainings chose is not."""
    answers = Answers(
        random(4, 10, 4000, 2), random(4000, 2), torch.ones(10, 4000).bool(), torch.full((10,), 0.1), None
    )  # type: ignore[arg-type]
    deviations = answers.f - answers.f.mean(0)
    by_image = torch.einsum("rknc,rlnc->nkl", deviations, deviations) / 3
    assert by_image.flatten(1).min(1).values.mean() < -0.1
    assert abs(answers.covariance_bound()) < 0.01


def test_the_bound_is_reached_if_all_clients_answer_alike() -> None:
    one = random(4, 1, 5, 2).expand(4, 3, 5, 2)
    answers = Answers(one, random(5, 2), torch.ones(3, 5).bool(), torch.full((3,), 1 / 3), random(4, 5, 2))
    halves = [half[:, 0].var(0).sum(-1).mean() for half in one.chunk(2)]
    assert answers.covariance_bound() == pytest.approx(2 / 3 * float(sum(halves)) / 2, abs=1e-12)
    assert answers.mean_covariance() == pytest.approx(answers.mean_variance(), abs=1e-12)
