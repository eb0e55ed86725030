"""Classes of a test set that nobody learns."""

from __future__ import annotations

import torch

from ..settings.errors import some
from ..tasks import Classification
from .federated import FederatedData
from .members import Members


def untrained(data: FederatedData) -> list[str]:
    """A line that names the classes of the test set that no client trains on, if there are any."""
    task = data.problem.task
    if data.test is None or not isinstance(task, Classification):
        return []
    y = data.train.y.cpu()[torch.from_numpy(Members.of(data.clients).flat)]
    trained, tested = (task.occurrences(labels, data.classes).tolist() for labels in (y, data.test.y.cpu()))
    names = dict(enumerate(data.label_names))
    missing = [f"{names.get(c, c)} ({n:,} samples)" for c, n in enumerate(tested) if n and not trained[c]]
    return [f"the test set has classes that no client trains on: {some(missing)}"] if missing else []
