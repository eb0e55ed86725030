"""How good a model is: on the central test set, and at the clients, who score themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..basics.arrays import Floats, Ints
from ..basics.errors import check
from ..basics.layout import Layout
from ..data import encoded
from ..data.encoded import EncodedImages
from ..data.federated import Problem, Samples
from ..exchange import Answers, Part, Reply, Request
from ..tasks import Loss

Split = Literal["held_out", "clients"]
"""On which of their samples clients score a model: on those held out, or on those that they train on."""


@dataclass(frozen=True)
class Evaluation:
    """When and on what the model and all averages are evaluated.

    Every `every` rounds, and after each of the last `last` rounds, over which means and deviations are reported. An
    adaptive broadcast decides every `every` rounds, too.
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

    def splits(self, held: bool) -> tuple[Split, ...]:
        """On which of their samples clients score models; `held` says whether some are held out."""
        asked: dict[Split, bool] = {"held_out": held, "clients": self.clients}
        return tuple(split for split, wanted in asked.items() if wanted)

    def due(self, round: int, rounds: int) -> bool:
        """Whether the models after `round` of `rounds` rounds are evaluated."""
        return round % self.every == 0 or round > rounds - self.last


@dataclass
class Metrics:
    """One model's results on one split, after `round` finished rounds; accuracies lie in [0, 1].

    The split `"test"` is the central test set; `more` holds the accuracy of each class, `classes`, and of each domain
    by its name, `domains` (None where there is no sample of it). The split `"held_out"` are the samples held out from
    the clients. The split `"clients"` is the unweighted mean over the clients; `more` holds `worst_tenth`, the mean
    accuracy of the tenth of the clients (at least one) with the lowest. The split `"broadcast"` says what an adaptive
    broadcast has chosen, `model` being the average.
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


SCORES = ("right", "counted", "loss", "samples")
"""What is summed over some samples: right predictions, predictions, losses, samples."""


def scored(split: Split) -> list[str]:
    """The names of what a client says of a split."""
    return [f"{split}/{name}" for name in SCORES]


class Scorer:
    """Lets models answer samples; `loss(output, y)` gives one number a sample, `batch` samples pass at a time."""

    def __init__(self, module: nn.Module, loss: Loss, problem: Problem, batch: int) -> None:
        self._module = copy.deepcopy(module).eval()
        self._layout = Layout(module)
        self._loss, self._problem, self._batch = loss, problem, batch

    @torch.no_grad()
    def outcomes(self, w: Tensor, samples: Samples, index: Ints | None = None) -> tuple[Floats, Floats, Floats]:
        """For each sample how many predictions of the model `w` `[D]` are right, how many there are, and its loss.

        With `index` `[n]` these of the samples only.
        """
        self._layout.bind(self._module, w)
        count = len(samples) if index is None else len(index)
        # One block for all: a small tensor a batch would lie between large ones, and break up the memory they leave.
        outcomes = torch.empty(3, count, dtype=self._layout.dtype, device=samples.y.device)
        batches = _batches(samples, index, self._batch), torch.split(outcomes, self._batch, dim=1)
        for (x, y), found in zip(*batches, strict=True):
            output = self._module(self._problem.transform.prepare(x).to(self._layout.dtype))
            found[0], found[1] = self._problem.task.score(output, y)
            found[2] = self._loss(output, y)
        right, counted, losses = outcomes.cpu().double().numpy()  # on the host: Apple's GPUs have no float64
        return right, counted, losses

    def scores(self, w: Tensor, samples: Samples, groups: list[Ints]) -> Floats:
        """The `SCORES` of the model on each group of samples, `[4, groups]`; a sample in several is answered once."""
        index = np.unique(np.concatenate([*groups, np.empty(0, dtype=np.int64)]))
        right, counted, losses = self.outcomes(w, samples, index) if len(index) else (np.empty(0),) * 3
        places = [np.searchsorted(index, group) for group in groups]
        return np.array([(right[p].sum(), counted[p].sum(), losses[p].sum(), len(p)) for p in places]).T


def _batches(samples: Samples, index: Ints | None, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples, `size` at a time."""
    if index is None or isinstance(samples.x, EncodedImages):
        samples = samples if index is None else samples[torch.from_numpy(index).to(samples.y.device)]
        yield from zip(encoded.split(samples.x, size), torch.split(samples.y, size), strict=True)
    else:
        for chosen in torch.split(torch.from_numpy(index).to(samples.y.device), size):
            yield samples.x[chosen], samples.y[chosen]


Ask = Callable[[Request], Answers]
"""Lets clients answer a request."""


class Evaluator:
    """Evaluates models on the central test set, and on splits that the clients (their number) score themselves."""

    def __init__(self, scorer: Scorer, problem: Problem, clients: int, splits: tuple[Split, ...]) -> None:
        self._scorer, self._problem, self._clients, self._splits = scorer, problem, clients, splits

    def evaluate(self, w: Tensor, round: int, model: str, ask: Ask) -> list[Metrics]:
        """The metrics of the model `w` `[D]` on every split; clients that do not answer are left out."""
        found = [] if self._problem.test is None else [self._central(self._problem.test, w, round, model)]
        scores = self._scores(w, round, ask) if self._splits else {}
        for split in self._splits if scores else ():
            right, counted, loss, samples = (scores[key] for key in scored(split))
            if split == "held_out":
                accuracy, mean = right.sum() / counted.sum(), loss.sum() / samples.sum()
                found.append(Metrics(round, model, split, float(accuracy), float(mean)))
            else:
                own = right / counted
                worst = {"worst_tenth": float(np.sort(own)[: max(len(own) // 10, 1)].mean())}
                found.append(Metrics(round, model, split, float(own.mean()), float((loss / samples).mean()), worst))
        return found

    def _central(self, test: Samples, w: Tensor, round: int, model: str) -> Metrics:
        right, counted, losses = self._scorer.outcomes(w, test)
        more: dict[str, Any] = {}
        if test.y.dim() == 1:
            more["classes"] = _shares(right, counted, test.y, self._problem.classes)
        if test.domain is not None:
            names = self._problem.domain_names or tuple(map(str, range(int(test.domain.max()) + 1)))
            more["domains"] = dict(zip(names, _shares(right, counted, test.domain, len(names)), strict=True))
        return Metrics(round, model, "test", float(right.sum() / counted.sum()), float(losses.mean()), more)

    def _scores(self, w: Tensor, round: int, ask: Ask) -> dict[str, Floats]:
        """What the clients that answer say of a model, one number each. Raises `RuntimeError` if one answers twice."""
        ids = np.arange(self._clients)
        heard, said = np.zeros(len(ids), dtype=np.bool_), []
        with closing(ask(Request("evaluate", round, ids, w, {}, {}, np.zeros_like(ids)))) as answers:
            for answer in answers:
                if isinstance(answer, Part) or heard[answer.places].any():
                    raise RuntimeError(
                        "an executor must answer for each client once when it evaluates, and with no Part"
                    )
                heard[answer.places] = True
                if isinstance(answer, Reply):
                    said.append(answer.upload)
        return {name: np.concatenate([upload[name].numpy() for upload in said]) for name in (said[0] if said else ())}


def _shares(right: Floats, counted: Floats, groups: Tensor, count: int) -> list[float | None]:
    """What share is right in each of `count` groups; None where a group is empty."""
    index: Ints = groups.cpu().numpy()
    total = np.bincount(index, weights=counted, minlength=count)
    hits = np.bincount(index, weights=right, minlength=count)
    return [float(h / n) if n else None for h, n in zip(hits, total, strict=True)]
