"""The linear probe of `benchmarks/features.py`."""

from __future__ import annotations

import torch
from benchmarks.features import hits, probe
from torch.nn.functional import one_hot


def test_a_probe_finds_labels_that_are_linear_in_the_features() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(300, 5, generator=random, dtype=torch.float64)
    y = (x[:, 0] > 0.3).long()
    x_test = torch.randn(200, 5, generator=random, dtype=torch.float64)
    assert hits(probe(x, y, x_test, 2), (x_test[:, 0] > 0.3).long()) > 95


def test_a_probe_is_the_least_squares_fit_with_a_bias() -> None:
    """Up to the ridge, which moves answers by about 1e-6."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(100, 4, generator=random, dtype=torch.float64) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + 1
    x_test = torch.randn(50, 4, generator=random, dtype=torch.float64)
    y = torch.arange(100) % 3
    ones = torch.ones(100, 1, dtype=torch.float64)
    weights = torch.linalg.lstsq(torch.cat([x, ones], 1), one_hot(y, 3).double()).solution
    assert torch.allclose(probe(x, y, x_test, 3), x_test @ weights[:-1] + weights[-1], atol=1e-5)


def test_a_unit_that_answers_nothing_changes_no_answer() -> None:
    random = torch.Generator().manual_seed(2)
    x = torch.randn(100, 4, generator=random, dtype=torch.float64)
    dead = torch.cat([x, torch.zeros(100, 1, dtype=torch.float64)], dim=1)
    y = torch.arange(100) % 3
    assert torch.allclose(probe(dead, y, dead, 3), probe(x, y, x, 3), atol=1e-12)
