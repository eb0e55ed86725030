"""Evaluation of models: on the central test set, and by the clients on their own samples."""

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
from ..basics.errors import check, check_count
from ..basics.layout import Layout
from ..basics.shown import Shown
from ..basics.typed import typed
from ..data import encoded
from ..data.encoded import EncodedImages
from ..data.federated import Problem, Samples
from ..exchange import Answers, PartialSum, Reply, Request
from ..tasks import Loss

Split = Literal["held_out", "clients"]
"""The client samples on which a model is scored: the held-out samples, or those on which clients train."""


@dataclass(frozen=True)
@typed
class Evaluation:
    """When and on what the model and all averages are evaluated.

    Models are evaluated after every `every` rounds, and after each of the `last` last rounds. Means and standard
    deviations are reported over these last rounds. An adaptive broadcast decides after every `every` rounds. `target`
    is an accuracy; the first round that reaches it is reported. `clients` adds the accuracy on the clients' own
    training samples. `batch` samples pass through the model at once. `held_out` is the fraction of each client's
    samples on which no client trains; models are compared on these samples, to choose between them.
    """

    every: int = 10
    last: int = 10
    target: float = 0.8
    clients: bool = False
    batch: int = 500
    held_out: float = 0.0

    def __post_init__(self) -> None:
        check_count("Evaluation.every", self.every)
        check_count("Evaluation.last", self.last)
        check(0 < self.target <= 1, "Evaluation.target", self.target, "must be above 0 and at most 1")
        right = "must be at least 0 and at most 0.9: clients need samples to train on"
        check(0 <= self.held_out <= 0.9, "Evaluation.held_out", self.held_out, right)
        check_count("Evaluation.batch", self.batch)

    def splits(self, held: bool) -> tuple[Split, ...]:
        """The splits that clients score; `held` says whether there are held-out samples."""
        asked: dict[Split, bool] = {"held_out": held, "clients": self.clients}
        return tuple(split for split, wanted in asked.items() if wanted)

    def due(self, round: int, rounds: int) -> bool:
        """Whether models are evaluated after `round` finished rounds of `rounds`."""
        return round % self.every == 0 or round > rounds - self.last


@dataclass(kw_only=True, repr=False)
class Metrics(Shown):
    """One model's results on one split, after `round` finished rounds; accuracies lie in [0, 1].

    - Split `"test"`: the central test set. `more` holds the accuracies of the classes, `classes`, and those of the
      domains by their names, `domains` (None without a sample);
    - `"held_out"`: the clients' held-out samples;
    - `"clients"`: the unweighted mean over the clients, on their training samples. `more` holds `worst_tenth`, the mean
      accuracy of the worst tenth of the clients (at least one client);
    - `"broadcast"`: the decision of an adaptive broadcast; `model` is the chosen average.
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
"""The sums over some samples: right predictions, all predictions, losses, samples."""


def scored(split: Split) -> list[str]:
    """The names of the scores that a client sends for a split."""
    return [f"{split}/{name}" for name in SCORES]


class Scorer:
    """Scores models on samples; `loss(output, y)` gives one number for each sample, `batch` samples pass at once."""

    def __init__(self, module: nn.Module, loss: Loss, problem: Problem, batch: int) -> None:
        self._module = copy.deepcopy(module).eval()
        self._layout = Layout(module)
        self._loss, self._problem, self._batch = loss, problem, batch

    @torch.no_grad()
    def outcomes(self, w: Tensor, samples: Samples, index: Ints | None = None) -> tuple[Floats, Floats, Floats]:
        """For each sample `[n]`: the right predictions of the model `w` `[D]`, all its predictions, and the loss.

        With `index` `[n]` it uses these samples only.
        """
        self._layout.bind(self._module, w)
        count = len(samples) if index is None else len(index)
        # One tensor for all: small tensors of single batches would lie between large ones and fragment the memory.
        outcomes = torch.empty(3, count, dtype=self._layout.dtype, device=samples.y.device)
        batches = _batches(samples, index, self._batch), torch.split(outcomes, self._batch, dim=1)
        for (x, y), found in zip(*batches, strict=True):
            output = self._module(self._problem.transform.prepare(x).to(self._layout.dtype))
            found[0], found[1] = self._problem.task.score(output, y)
            found[2] = self._loss(output, y)
        right, counted, losses = outcomes.cpu().double().numpy()  # on the host: Apple's GPUs have no float64
        return right, counted, losses

    def scores(self, w: Tensor, samples: Samples, groups: list[Ints]) -> Floats:
        """The `SCORES` of the model on each group of samples, `[4, groups]`; a sample in several groups passes once."""
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
"""Sends a request to clients and returns their answers."""


class Evaluator:
    """Evaluates models on the central test set, and on the `splits` that `clients` clients score on their samples."""

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
                more: dict[str, Any] = {}
            else:
                own = right / counted
                accuracy, mean = own.mean(), (loss / samples).mean()
                more = {"worst_tenth": float(np.sort(own)[: max(len(own) // 10, 1)].mean())}
            found.append(
                Metrics(round=round, model=model, split=split, accuracy=float(accuracy), loss=float(mean), more=more)
            )
        return found

    def _central(self, test: Samples, w: Tensor, round: int, model: str) -> Metrics:
        right, counted, losses = self._scorer.outcomes(w, test)
        more: dict[str, Any] = {}
        if test.y.dim() == 1:
            more["classes"] = _shares(right, counted, test.y, self._problem.classes)
        if test.domain is not None:
            names = self._problem.domain_names or tuple(map(str, range(int(test.domain.max()) + 1)))
            more["domains"] = dict(zip(names, _shares(right, counted, test.domain, len(names)), strict=True))
        accuracy, loss = float(right.sum() / counted.sum()), float(losses.mean())
        return Metrics(round=round, model=model, split="test", accuracy=accuracy, loss=loss, more=more)

    def _scores(self, w: Tensor, round: int, ask: Ask) -> dict[str, Floats]:
        """The scores of a model by the clients that answer, `[clients]` each.

        Raises `RuntimeError` if a client answers twice, or with a `PartialSum`.
        """
        ids = np.arange(self._clients)
        heard, said = np.zeros(len(ids), dtype=np.bool_), []
        request = Request(
            job="evaluate", round=round, ids=ids, sent=w, server_state={}, client_state={}, last=np.zeros_like(ids)
        )
        with closing(ask(request)) as answers:
            for answer in answers:
                if isinstance(answer, PartialSum) or heard[answer.places].any():
                    raise RuntimeError(
                        "an executor must answer for each client once when it evaluates, and with no PartialSum"
                    )
                heard[answer.places] = True
                if isinstance(answer, Reply):
                    said.append(answer.upload)
        return {name: np.concatenate([upload[name].numpy() for upload in said]) for name in (said[0] if said else ())}


def _shares(right: Floats, counted: Floats, groups: Tensor, count: int) -> list[float | None]:
    """The share of right predictions in each of `count` groups; None for an empty group."""
    index: Ints = groups.cpu().numpy()
    total = np.bincount(index, weights=counted, minlength=count)
    hits = np.bincount(index, weights=right, minlength=count)
    return [float(h / n) if n else None for h, n in zip(hits, total, strict=True)]
