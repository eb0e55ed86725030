"""How good a model is: on the central test set, and at the clients."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .batches import Floats, Ints
from .checks import check
from .data.encoded import split
from .data.federated import FederatedData, Samples
from .engines.gradients import Loss
from .layout import Layout


@dataclass(frozen=True)
class Evaluation:
    """When and on what the model and all averages are evaluated.

    Every `every` rounds, and after each of the last `last` rounds, over which means and deviations are reported.
    `target` is the accuracy whose first round is reported; `clients` adds the accuracy at the clients, on their own
    training samples; `batch` is how many samples pass through the model at once. `held_out` is the fraction of each
    client's training samples that nobody trains on and that the models are evaluated on, to choose among them.
    """

    every: int = 10
    last: int = 10
    target: float = 0.8
    clients: bool = False
    batch: int = 500
    held_out: float = 0.0

    def __post_init__(self) -> None:
        check(self.every >= 1, "Evaluation.every", self.every, "must be at least 1")
        check(self.last >= 1, "Evaluation.last", self.last, "must be at least 1")
        check(0 < self.target <= 1, "Evaluation.target", self.target, "must be above 0 and at most 1")
        check(0 <= self.held_out < 1, "Evaluation.held_out", self.held_out, "must be at least 0 and below 1")
        check(self.batch >= 1, "Evaluation.batch", self.batch, "must be at least 1")

    def due(self, round: int, rounds: int) -> bool:
        """Whether the models after `round` of `rounds` rounds are evaluated."""
        return round % self.every == 0 or round > rounds - self.last


@dataclass
class Metrics:
    """One model's results on one split, after `round` finished rounds; accuracies lie in [0, 1].

    The split `"test"` is the central test set; `more` holds the accuracy of each class, `classes`, and of each domain
    by its name, `domains` (None where there is no sample of it). The split `"held_out"` are the samples held out from
    the clients. The split `"clients"` is the unweighted mean over the clients; `more` holds `worst_tenth`, the mean
    accuracy of the tenth of the clients (at least one) with the lowest. The split `"feed"` says what an adaptive feed
    has chosen, `model` being the average.
    """

    round: int
    model: str
    split: str
    accuracy: float
    loss: float
    more: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """The metrics as one flat record."""
        row = {"round": self.round, "model": self.model, "split": self.split}
        return row | {"accuracy": self.accuracy, "loss": self.loss} | self.more


class Evaluator:
    """Evaluates model vectors on the data of one federation; `loss(output, y)` gives one number a sample.

    `held_out` are the indices of the training samples held out from the clients.
    """

    def __init__(
        self, module: nn.Module, loss: Loss, data: FederatedData, evaluation: Evaluation, held_out: Ints
    ) -> None:
        self._module = copy.deepcopy(module).eval()
        self._layout = Layout(module)
        self._loss, self._data, self._evaluation = loss, data, evaluation
        self._held_out = data.train[torch.from_numpy(held_out).to(data.train.x.device)] if len(held_out) else None

    def evaluate(self, w: Tensor, round: int, model: str) -> Iterator[Metrics]:
        """The metrics of the model `w` `[D]` on every split that is asked for."""
        self._layout.bind(self._module, w)
        if self._data.test is not None:
            yield self._central(self._data.test, round, model)
        if self._held_out is not None:
            right, counted, losses = self._outcomes(self._held_out)
            yield Metrics(round, model, "held_out", float(right.sum() / counted.sum()), float(losses.mean()))
        if self._evaluation.clients:
            yield self._at_clients(round, model)

    def _central(self, test: Samples, round: int, model: str) -> Metrics:
        right, counted, losses = self._outcomes(test)
        more: dict[str, Any] = {}
        if test.y.dim() == 1:
            more["classes"] = _shares(right, counted, test.y, self._data.classes)
        if test.domain is not None:
            names = self._data.domain_names or tuple(map(str, range(int(test.domain.max()) + 1)))
            more["domains"] = dict(zip(names, _shares(right, counted, test.domain, len(names)), strict=True))
        return Metrics(round, model, "test", float(right.sum() / counted.sum()), float(losses.mean()), more)

    def _at_clients(self, round: int, model: str) -> Metrics:
        right, counted, losses = self._outcomes(self._data.train)
        own = np.array([(right[ids].sum() / counted[ids].sum(), losses[ids].mean()) for ids in self._data.clients])
        accuracy, loss = own.mean(axis=0)
        worst = np.sort(own[:, 0])[: max(len(own) // 10, 1)].mean()
        return Metrics(round, model, "clients", float(accuracy), float(loss), {"worst_tenth": float(worst)})

    @torch.no_grad()
    def _outcomes(self, samples: Samples) -> tuple[Floats, Floats, Floats]:
        """For each sample how many predictions are right and how many there are, and its loss."""
        size = self._evaluation.batch
        # One block for all: a small tensor a batch would lie between large ones, and break up the memory they leave.
        outcomes = torch.empty(3, len(samples), dtype=self._layout.dtype, device=samples.y.device)
        batches = split(samples.x, size), torch.split(samples.y, size), torch.split(outcomes, size, dim=1)
        for x, y, found in zip(*batches, strict=True):
            output = self._module(self._data.transform.prepare(x).to(self._layout.dtype))
            found[0], found[1] = self._data.task.score(output, y)
            found[2] = self._loss(output, y)
        right, counted, losses = outcomes.cpu().double().numpy()  # on the host: Apple's GPUs have no float64
        return right, counted, losses


def _shares(right: Floats, counted: Floats, groups: Tensor, count: int) -> list[float | None]:
    """What share is right in each of `count` groups; None where a group is empty."""
    index: Ints = groups.cpu().numpy()
    total = np.bincount(index, weights=counted, minlength=count)
    hits = np.bincount(index, weights=right, minlength=count)
    return [float(h / n) if n else None for h, n in zip(hits, total, strict=True)]
