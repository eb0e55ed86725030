"""A small world in float64 for each task, with clients of unequal sizes, and each metric as people would write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.evaluation import Evaluation
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.tasks import (
    F1,
    Accuracy,
    Binary,
    Classification,
    MeanAbsoluteError,
    MeanIoU,
    MultiLabel,
    NextCharacter,
    NextToken,
    Regression,
    Segmentation,
    Task,
)
from support.worlds import SEQUENTIAL, SIZES

Array = np.ndarray[Any, Any]
Account = Callable[[Array, Array], float]
"""A metric of outputs and labels in NumPy; NaN where it is not defined."""

N, TEST, T, TOKENS = sum(SIZES), 15, 5, 7
RNG = np.random.default_rng(3)
TABLE, IMAGES = RNG.normal(size=(N + TEST, 4)), RNG.integers(0, 256, (N + TEST, 4, 5), dtype=np.uint8)
WORDS = RNG.integers(1, TOKENS, (N + TEST, T))
LENGTHS = RNG.integers(1, T + 1, (N + TEST, 1))
MASK = np.arange(T) < LENGTHS


class Tokens(nn.Module):
    """Answers at each place of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(TOKENS, 6), nn.Linear(6, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.table(x)))
        return found


class Masked(nn.Module):
    """Answers for a sequence and two numbers, by the mean over its real places."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(TOKENS, 6), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        weights = attention_mask.unsqueeze(-1).to(numbers.dtype)
        read = (torch.tanh(self.table(input_ids)) * weights).sum(1) / weights.sum(1)
        return {"logits": self.head(torch.cat([read, numbers], 1))}


def mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")


def shares(said: Array, y: Array, union: bool) -> float:
    """Macro F1, or the mean intersection over `union`, of the classes that occur in predictions or labels."""
    found = []
    for c in set(said.tolist()) | set(y.tolist()):
        both, either = ((said == c) & (y == c)).sum(), ((said == c) | (y == c)).sum()
        found.append(both / either if union else 2 * both / (both + either))
    return mean(np.array(found))


def of_ones(said: Array, y: Array) -> float:
    hits, either = (said * y).sum(), said.sum() + y.sum()
    return float(2 * hits / either) if either else float("nan")


def of_labels(said: Array, y: Array) -> float:
    found = np.array([of_ones(*columns) for columns in zip(said.T, y.T, strict=True)])
    return mean(found[~np.isnan(found)])


def perplexity(output: Array, y: Array) -> float:
    real = y != -100
    z, labels = output[real], y[real]
    return float(np.exp(mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), labels])))


def r2(output: Array, y: Array) -> float:
    with np.errstate(invalid="ignore", divide="ignore"):
        found = 1 - ((output - y) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0)
    return mean(found) if np.isfinite(found).all() else float("nan")


def top2(output: Array, y: Array) -> float:
    return mean((np.argsort(-output, 1)[:, :2] == y[:, None]).any(1))


def median(output: Any, y: Any) -> float:
    """A number that is no sum over samples."""
    return float(np.median(np.asarray(output)))


@dataclass(frozen=True)
class Problem:
    """A task with a model and data, more metrics, and an account of every metric by name."""

    task: Task
    model: Callable[[], nn.Module]
    x: Any
    y: Array
    accounts: dict[str, Account]
    metrics: dict[str, Any]

    def federation(self, **settings: Any) -> Federation:
        """Six clients of unequal sizes, four in each round."""
        torch.manual_seed(1)
        clients = np.split(np.arange(N), np.cumsum(SIZES)[:-1])
        x, y = self.x, self.y
        parts = (_cut(x, slice(None, N)), y[:N]), (_cut(x, slice(N, None)), y[N:])
        data = FederatedData.from_arrays(*parts[0], clients, test=parts[1], task=self.task, classes=self.classes)
        defaults: dict[str, Any] = {
            "local": LocalTraining(lr=0.2, batch=4, epochs=2),
            "sampling": Uniform(4),
            "averages": {"window": Window(2)},
            "metrics": {**self.metrics, "median": median},
            "evaluation": Evaluation(held_out=0.3, clients=True, batch=7),
            "engine": SEQUENTIAL,
            "device": "cpu",
        }
        return Federation(self.model().double(), data, **defaults | settings)

    @property
    def classes(self) -> int:
        return TOKENS if isinstance(self.task, NextToken) else self.task.classes(torch.from_numpy(self.y))


def _cut(x: Any, rows: slice) -> Any:
    if isinstance(x, dict):
        return {name: value[rows] for name, value in x.items()}
    return tuple(value[rows] for value in x) if isinstance(x, tuple) else x[rows]


def _real(account: Account, ignored: int) -> Account:
    """The account of the labels that count, of outputs with the classes last."""

    def found(output: Array, y: Array) -> float:
        real = y != ignored
        return account(output.argmax(-1)[real], y[real])

    return found


def _last(output: Array) -> Array:
    return np.moveaxis(output, 1, -1)


_CLASSES = RNG.integers(0, 3, N + TEST)
_PIXELS = np.where(RNG.random((N + TEST, 4, 5)) < 0.1, 9, RNG.integers(0, 3, (N + TEST, 4, 5)))
_LABELS = (TABLE[:, :3] + RNG.normal(size=(N + TEST, 3)) > 0).astype(np.int64)
_NUMBERS = TABLE[:, :2] @ RNG.normal(size=(2, 2)) + 0.1 * RNG.normal(size=(N + TEST, 2))
_NEXT = np.where(MASK, RNG.integers(0, TOKENS, (N + TEST, T)), -100)
_EQUAL: Account = lambda said, y: mean(said == y)  # noqa: E731
_RIGHT: Account = lambda z, y: mean(z.argmax(1) == y)  # noqa: E731
_F1: Account = lambda z, y: shares(z.argmax(1), y, union=False)  # noqa: E731
_ERRORS: dict[str, Account] = {
    "rmse": lambda z, y: float(np.sqrt(mean((z - y) ** 2))),
    "mae": lambda z, y: mean(abs(z - y)),
    "r2": r2,
}
_OF_CLASSES: dict[str, Any] = {"f1": F1(), "top2": Accuracy(top=2)}
_OF_SEQUENCES: dict[str, Account] = {"accuracy": _real(_EQUAL, -100), "perplexity": perplexity}

PROBLEMS = {
    "classification": Problem(
        Classification((1.0, 2.0, 0.5), 0.1),
        lambda: nn.Linear(4, 3),
        TABLE,
        _CLASSES,
        {"accuracy": _RIGHT, "f1": _F1, "top2": top2},
        _OF_CLASSES,
    ),
    "binary": Problem(
        Binary(2.0),
        lambda: nn.Linear(4, 1),
        TABLE,
        _LABELS[:, 0],
        {"accuracy": lambda z, y: mean((z > 0) == y), "f1": lambda z, y: of_ones(z > 0, y)},
        {"f1": F1()},
    ),
    "multi_label": Problem(
        MultiLabel(3.0),
        lambda: nn.Linear(4, 3),
        TABLE,
        _LABELS,
        {"accuracy": lambda z, y: mean((z > 0) == y), "f1": lambda z, y: of_labels(z > 0, y)},
        {"f1": F1()},
    ),
    "regression": Problem(Regression("huber", 0.5), lambda: nn.Linear(4, 2), TABLE, _NUMBERS, _ERRORS, {}),
    "regression of one number": Problem(
        Regression(),
        lambda: nn.Linear(4, 1),
        TABLE,
        _NUMBERS[:, 0],
        {**_ERRORS, "off": _ERRORS["mae"]},
        {"off": MeanAbsoluteError()},
    ),
    "segmentation": Problem(
        Segmentation(ignored=9),
        lambda: nn.Conv2d(1, 3, 3, padding=1),
        IMAGES,
        _PIXELS,
        {
            "mean_iou": lambda z, y: _real(lambda said, y: shares(said, y, union=True), 9)(_last(z), y),
            "accuracy": lambda z, y: _real(_EQUAL, 9)(_last(z), y),
            "f1": lambda z, y: _real(lambda said, y: shares(said, y, union=False), 9)(_last(z), y),
        },
        {"f1": F1()},
    ),
    "next_token": Problem(NextToken(), Tokens, WORDS, _NEXT, _OF_SEQUENCES, {}),
    "next_character": Problem(
        NextCharacter(), Tokens, np.where(MASK, WORDS, 0), np.where(MASK, WORDS[:, ::-1], 0),
        {"accuracy": _real(_EQUAL, 0), "iou": _real(lambda said, y: shares(said, y, union=True), 0)},
        {"iou": MeanIoU()},
    ),
    "several inputs by name": Problem(
        Classification(),
        Masked,
        {"input_ids": WORDS, "attention_mask": MASK, "numbers": TABLE[:, :2]},
        _CLASSES,
        {"accuracy": _RIGHT, "f1": _F1, "top2": top2},
        _OF_CLASSES,
    ),
    "several inputs by place": Problem(
        Classification(), Masked, (WORDS, MASK, TABLE[:, :2]), _CLASSES, {"accuracy": _RIGHT}, {}
    ),
}  # fmt: skip
