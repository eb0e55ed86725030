"""What FedFA refuses."""

from __future__ import annotations

import pytest
import torch

from fedsash.methods import FedFA


def test_fedfa_refuses_labels_that_are_sequences_in_one_line() -> None:
    work, one = torch.zeros(4, 2), torch.zeros(4)
    with pytest.raises(ValueError, match=r"FedFA: labels of a batch.*must be one for each sample"):
        FedFA().objective(work, torch.zeros(4, 3, dtype=torch.int64), one, {})
