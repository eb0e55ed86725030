"""Labels that will hardly be learned as they are."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from ...local import SGD, LocalTraining
from ...tasks import Classification, OnlyLoss, Regression
from .driver import Driver

FEW, STEEP = 4, 2.0
"""The fewest samples that a class has on average, and the largest product of the labels' size and the learning rate:
beyond it networks mostly diverge."""


def doubtful(driver: Driver) -> Iterator[str]:
    """A line if all training labels are the same, if there are hardly more samples than classes, or if numbers are so
    large that the squared error sends a network astray."""
    data, task = driver.clients.data, driver.goal.task
    if data is None or isinstance(task, OnlyLoss):
        return
    y = data.train.y
    if y.dim() == 1 and len(y) > 1 and bool((y == y[0]).all()):
        yield "every training label is the same: there is nothing to learn"
    elif isinstance(task, Classification) and len(y) < FEW * (found := len(set(y.tolist()))):
        yield f"{len(y):,} training samples have {found:,} classes: for numbers as labels name the task regression"
    elif isinstance(task, Regression) and task.error == "squared" and driver.goal.loss == task.loss_of:
        yield from _steep(driver, y.double().flatten(1) if y.dim() > 1 else y.double().unsqueeze(1))


def _steep(driver: Driver, y: Tensor) -> Iterator[str]:
    """A line if the labels `y` `[n, targets]` are too large for the learning rate of a network with hidden layers."""
    facts = driver.facts()
    local, model, size = facts["local"], facts["model"], y.square().mean(0).sqrt()
    assert isinstance(local, LocalTraining) and isinstance(model, nn.Module)
    deep = sum(p.requires_grad and p.dim() > 1 for p in model.parameters()) > 1
    plain = isinstance(local.optimiser, SGD) and local.clip is None
    if deep and plain and local.lr * float(size.max()) > STEEP:
        worst = y[:, size.argmax()]
        found = f"labels of {_rounded(worst.mean())} ± {_rounded(worst.std(correction=0))} may make the model diverge"
        yield f"{found}: scale them to about 1, or lower local.lr = {local.lr:g}"


def _rounded(number: Tensor) -> str:
    return f"{float(f'{float(number):.3g}'):,g}"
