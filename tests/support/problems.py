"""Small problems of many kinds in a few lines: tables, token ids, masks, and models that take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash import FederatedData, Federation, LocalTraining, Uniform
from fedsash.evaluation import Score
from fedsash.tasks import Task
from fedsash.testing.worlds import SEQUENTIAL

N, WORDS, LENGTH, CLASSES = 24, 11, 5, 3
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(N, 4))
COUNTS = RNG.integers(0, 9, (N, 4))
TOKENS = RNG.integers(0, WORDS, (N, LENGTH))
MASK = np.arange(LENGTH) < RNG.integers(1, LENGTH + 1, (N, 1))
Y = np.arange(N) % CLASSES
YES = (TABLE[:, 0] > 0).astype(np.int64)
"""Labels that one feature decides."""


def world(model: nn.Module, x: Any, y: Any, task: Task | None = None, **settings: Any) -> Federation:
    """Three clients; the test set is the training samples."""
    clients = [np.arange(start, N, 3) for start in range(3)]
    data = FederatedData.from_arrays(x, y, clients, test=(x, y), task=task)
    defaults: dict[str, Any] = {"local": LocalTraining(lr=0.3, batch=4), "sampling": Uniform(2), "device": "cpu"}
    return Federation(model, data, engine=SEQUENTIAL, **defaults | settings)


def judged(f: Federation, rounds: int = 2) -> Score:
    """The metrics of the model on the test set after some rounds."""
    with f:
        state = f.start()
        for _ in range(rounds):
            state, _ = f.round(state)
        (found,) = f.evaluate(state)
    return found


def output(f: Federation, w: Tensor, x: Any) -> Tensor:
    """What the model `w` says, without fedsash's evaluation."""
    with torch.no_grad():
        found: Tensor = f.module_of(w)(x)
    return found


class Words(nn.Module):
    """Looks token ids up, reads them by `reader`, and answers for a sequence by the mean over its places."""

    def __init__(self, reader: str = "none") -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, 8)
        self.reader = {
            "none": nn.Identity,
            "lstm": lambda: nn.LSTM(8, 8, batch_first=True),
            "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        }[reader]()
        self.head = nn.Linear(8, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        read = self.reader(self.table(input_ids))
        states = read[0] if isinstance(read, tuple) else read
        weights = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        said: Tensor = self.head((states * weights.unsqueeze(-1)).sum(1) / weights.sum(1, keepdim=True))
        return said


class Wrapped(nn.Module):
    """A linear model that returns its logits in some wrapping."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.head, self.wrap = nn.Linear(4, CLASSES), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.head(x))


def own(output: Tensor, y: Tensor) -> Tensor:
    """A loss for one logit, as users write it."""
    return F.binary_cross_entropy_with_logits(output.squeeze(-1), y.float(), reduction="none")
