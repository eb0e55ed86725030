"""A partition that takes long says that it goes on."""

from __future__ import annotations

import numpy as np
import pytest

from fedsash.data import DirichletClasses
from fedsash.data.partitions import by_labels
from fedsash.settings.errors import DataError


def test_a_partition_that_is_drawn_again_and_again_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(by_labels, "SILENT", 0.0)
    with pytest.raises(DataError, match="none of 20 draws"):
        DirichletClasses(clients=50, alpha=0.001, tries=20)(np.arange(500) % 10, seed=0)
    [line] = caplog.messages
    assert "of 20 draws gave no partition in which each of 50 clients has 10 samples; it goes on" in line
