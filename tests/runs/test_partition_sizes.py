"""A picture of who holds what counts samples where they are samples, and labels where a sample has several."""

from __future__ import annotations

import numpy as np
import pytest

from fedsash import FederatedData
from fedsash.runs.partition import record
from fedsash.runs.pictures.partition import partition
from fedsash.tasks import Classification, MultiLabel, NextToken, Task

Y = np.arange(6) % 3


@pytest.mark.parametrize(
    ("task", "y", "what"),
    [
        (Classification(), Y, "samples"),
        (NextToken(), np.stack([Y, Y], axis=1), "labels"),
        (MultiLabel(), np.stack([Y > 0, Y > 1], axis=1).astype(np.int64), "labels"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Task) else "",
)
def test_sizes_are_samples_and_bars_say_what_they_count(task: Task, y: np.ndarray, what: str) -> None:
    data = FederatedData.from_arrays(np.zeros((6, 2)), y, [[0, 1, 2, 3], [4, 5]], task=task)
    found = record(data)
    assert found["sizes"] == [4, 2]
    picture = partition(found)
    assert "2 to 4 training samples a client" in picture.caption
    assert picture.panels[0].name == f"{what} of each client" and picture.panels[0].y.label == what
