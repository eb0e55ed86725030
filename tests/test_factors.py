"""The factors of the averaged model's error that `benchmarks/factors.py` measures, in float64."""

from __future__ import annotations

import pytest
import torch
from benchmarks.factors import Round


def some_round() -> Round:
    """Random answers of 4 clients, the first of which holds most images, in 3 trainings."""
    rng = torch.Generator().manual_seed(0)
    f = torch.rand(3, 4, 5, 2, generator=rng, dtype=torch.float64)
    y = torch.rand(5, 2, generator=rng, dtype=torch.float64)
    held = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]).bool()
    p = torch.tensor([0.4, 0.2, 0.2, 0.2], dtype=torch.float64)
    return Round(f, y, held, p, torch.rand(3, 5, 2, generator=rng, dtype=torch.float64))


def test_the_factors_are_the_averaged_models_error() -> None:
    round = some_round()
    whole = (round.y - round.of_means).square().sum(-1).mean()
    assert sum(round.sizes().values()) == pytest.approx(float(whole), abs=1e-12)


def test_the_least_covariance_is_that_of_each_images_pairs() -> None:
    round = some_round()
    deviations = round.f - round.f.mean(0)
    least = 0.0
    for image in range(5):
        found = []
        for one in range(4):
            for other in range(one):
                found.append(float((deviations[:, one, image] * deviations[:, other, image]).sum(-1).mean()))
        least += min(found)
    assert round.least_covariance() == pytest.approx(3 / 4 * least / 5, abs=1e-12)
