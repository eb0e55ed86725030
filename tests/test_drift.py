"""How alike clients' updates are, as `benchmarks/drift.py` measures it."""

from __future__ import annotations

import pytest
import torch
from benchmarks.drift import mean_cosine


@pytest.mark.parametrize("angle", [0, 60, 90, 180])
def test_two_updates_have_the_cosine_of_their_angle_whatever_their_lengths(angle: float) -> None:
    turned = torch.deg2rad(torch.tensor(float(angle), dtype=torch.float64))
    updates = torch.stack([torch.tensor([2.0, 0.0]).double(), 5 * torch.stack([turned.cos(), turned.sin()])])
    assert mean_cosine(updates) == pytest.approx(float(turned.cos()), abs=1e-12)


def test_the_mean_over_all_pairs_follows_from_the_sum_of_directions() -> None:
    """||sum of s unit vectors||^2 = s + s (s - 1) times the mean cosine."""
    updates = torch.randn(7, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = (updates / updates.norm(dim=1, keepdim=True)).sum(0).square().sum()
    assert mean_cosine(updates) == pytest.approx(float((whole - 7) / 42), abs=1e-12)
