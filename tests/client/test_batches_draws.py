"""What batches draw, pinned: it must stay as it is from version to version."""

from __future__ import annotations

import numpy as np
import torch

from fedsash.client.plan import Batches
from fedsash.client.settings import Batching


def test_the_draws_of_batches_are_those_of_this_version() -> None:
    """A run that is resumed by a later version must draw what it drew: another hash is another experiment."""
    batches = Batches(Batching(2, False, False), [np.arange(5), np.arange(5, 8)], seed=7, like=torch.empty(0))
    work = batches.batching.workload(batches.sizes, 1)
    plan = batches.plan(3, np.array([0, 1]), work)
    assert plan.index[:, :, :2].reshape(-1).tolist() == [0, 4, 7, 6, 3, 2, 5, 7, 1, 0, 7, 7]
    again = batches.plan(3, np.array([0, 1]), work)
    assert torch.equal(torch.as_tensor(plan.index), torch.as_tensor(again.index))
