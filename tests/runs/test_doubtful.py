"""Labels that will hardly be learned as they are: a line of warning, and none where all is well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import nn

from fedsash import FederatedData, Federation, LocalTraining, run
from fedsash.client import Adam
from fedsash.tasks import Regression
from support.problems import CLASSES, TABLE, YES, N, Y, own, world

SAME = "every training label is the same: there is nothing to learn"
PRICES = 300_000 + 50_000 * TABLE[:, 0]


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, width))


def prices(model: nn.Module | None = None, error: Any = "squared", **local: Any) -> Federation:
    training = LocalTraining(**{"lr": 0.1, "batch": 4} | local)
    return world(model or network(1), TABLE, PRICES, task=Regression(error), local=training)


DOUBTFUL: dict[str, tuple[Callable[[], Federation], str]] = {
    "one class": (lambda: world(network(2), TABLE, 0 * Y), SAME),
    "one number": (lambda: world(network(1), TABLE, 0.0 * Y, task=Regression()), SAME),
    "ages as classes": (
        lambda: world(network(N), TABLE, np.arange(N)),
        "24 training samples have 24 classes: for numbers as labels name the task regression",
    ),
    "prices": (prices, " may make the model diverge: scale them to about 1, or lower local.lr = 0.1"),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_labels_that_can_hardly_be_learned_are_one_line(case: str, caplog: pytest.LogCaptureFixture) -> None:
    make, line = DOUBTFUL[case]
    run(make(), 1, progress=False)
    said = [message for message in caplog.messages if not message.startswith("round")]
    assert len(said) == 1 and line in said[0]


def test_large_labels_are_named_by_their_mean_and_deviation(caplog: pytest.LogCaptureFixture) -> None:
    run(prices(), 1, progress=False)
    mean, deviation = PRICES.mean(), PRICES.std()
    found = caplog.messages[0].removeprefix("labels of ").split(" may")[0].replace(",", "").split(" ± ")
    assert [float(number) for number in found] == pytest.approx([mean, deviation], rel=0.01)


class Rebuilding(Regression):
    """A task that does not need its labels."""


def named(y: Any) -> Federation:
    data = FederatedData.from_arrays(TABLE, y, [range(N)], label_names=tuple(f"kind{i}" for i in range(N)))
    return Federation(network(N), data)


HEALTHY: dict[str, Callable[[], Federation]] = {
    "classes": lambda: world(network(CLASSES), TABLE, Y),
    "a loss of one's own, which may need no labels": lambda: world(network(1), TABLE, 0 * YES, loss=own),
    "numbers of size one": lambda: world(network(1), TABLE, TABLE[:, 0], task=Regression()),
    "few samples of classes with names": lambda: named(np.arange(N)),
    "a task of one's own, which may need no labels": lambda: world(network(1), TABLE, 0.0 * Y, task=Rebuilding()),
    "prices and a small rate": lambda: prices(lr=1e-6),
    "prices and steps that do not grow with them": lambda: prices(optimiser=Adam()),
    "prices and clipped steps": lambda: prices(clip=1.0),
    "prices and an error whose gradient is bounded": lambda: prices(error="absolute"),
    "prices and a linear model": lambda: prices(nn.Linear(4, 1)),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_nothing_is_said_of_healthy_labels(case: str, caplog: pytest.LogCaptureFixture) -> None:
    run(HEALTHY[case](), 1, progress=False)
    assert not [message for message in caplog.messages if not message.startswith("round")]
