"""Labels that will hardly be learned as they are."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...local import SGD, LocalTraining
from ...tasks import Binary, Classification, Regression
from .driver import Driver

FEW, STEEP = 4, 2.0
"""The fewest samples that a class has on average, and the largest product of the labels' size and the learning rate:
beyond it networks may diverge."""
KNOWN = Classification, Binary, Regression
"""The tasks that learn nothing from labels that are all the same; others may not need them."""


def doubtful(driver: Driver) -> Iterator[str]:
    """A line if all training labels are the same, if there are hardly more samples than classes, or if numbers are so
    large that the squared error sends a network astray."""
    data, task = driver.clients.data, driver.goal.task
    if data is None or type(task) not in KNOWN or driver.goal.loss != task.loss_of:
        return
    y = data.train.y
    if y.dim() == 1 and len(y) > 1 and bool((y == y[0]).all()):
        yield "every training label is the same: there is nothing to learn"
    elif isinstance(task, Classification) and not data.label_names and len(y) < FEW * data.classes:
        if len(y) < FEW * (found := len(set(y.tolist()))):
            yield f"{len(y):,} training samples have {found:,} classes: for numbers as labels name the task regression"
    elif isinstance(task, Regression) and task.error == "squared":
        yield from _steep(driver, y)


def _steep(driver: Driver, y: Tensor) -> Iterator[str]:
    """A line if the labels `y` `[n, ...]` are too large for the learning rate of a network with hidden layers."""
    facts = driver.facts()
    local, model = facts["local"], facts["model"]
    assert isinstance(local, LocalTraining) and isinstance(model, nn.Module)
    deep = sum(p.requires_grad and p.dim() > 1 for p in model.parameters()) > 1
    if not deep or not isinstance(local.optimiser, SGD) or local.clip is not None:
        return
    targets = y.reshape(len(y), -1)
    size = torch.linalg.vector_norm(targets, dim=0, dtype=torch.float64) / len(y) ** 0.5
    if local.lr * float(size.max()) > STEEP:
        worst = targets[:, size.argmax()].double()
        found = f"labels of {_rounded(worst.mean())} ± {_rounded(worst.std(correction=0))} may make the model diverge"
        yield f"{found}: scale them to about 1, or lower local.lr = {local.lr:g}"


def _rounded(number: Tensor) -> str:
    return f"{float(f'{float(number):.3g}'):,g}"
