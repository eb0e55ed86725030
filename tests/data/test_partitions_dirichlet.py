"""Dirichlet splits: nobody is empty, parts are sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsash.data.partitions import Dirichlet, DirichletClasses, DirichletReuse


def test_no_client_of_a_dirichlet_split_is_empty_if_one_sample_is_asked_for() -> None:
    labels = np.random.default_rng(0).integers(0, 3, 60)
    for seed in range(200):
        assert min(map(len, DirichletClasses(8, 0.3, min_size=1)(labels, seed))) >= 1


@pytest.mark.parametrize("rule", [Dirichlet(5, 0.3), DirichletReuse(5, 0.3)], ids=str)
def test_the_parts_of_a_dirichlet_split_are_sorted(rule: Any) -> None:
    for part in rule(np.random.default_rng(0).integers(0, 3, 100), 1):
        assert part.tolist() == sorted(part.tolist())
