"""Scores: the sums over samples from which metrics are made."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..data import encoded
from ..data.encoded import EncodedImages
from ..data.federated import Problem
from ..data.inputs import ModelInput, call
from ..data.samples import Samples
from ..settings.errors import ModelError
from ..tasks import Scored
from ..vector.arrays import Floats, Ints
from ..vector.layout import Layout
from ..vector.randomness import UNFORESEEN_DRAWS, draws_kept, seed_torch, torch_states
from .first_batch import tried
from .goal import Goal

Scores = dict[str, Floats]
"""Sums over some samples: `"loss"` `[..., 2]` holds the sum of losses and the number of samples, others by metric."""


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The results of a model on n samples: `"loss"` `[n, 2]` and what each adds to the sums `[n, k]` of each metric.

    `outputs_and_labels` of all samples are there if a metric of all samples together needs them.
    """

    sums: Scores
    outputs_and_labels: tuple[Tensor, Tensor] | None

    def total(self, goal: Goal, rows: Ints | slice) -> Scores:
        """The scores of some of the samples, `[k]` each."""
        return {name: self._score(goal, name, rows) for name in goal.names}

    def criterion(self, goal: Goal, rows: Ints) -> float:
        """The value of the number that decides, for some of the samples."""
        name = goal.criterion.name
        return float(value_of(goal, name, self._score(goal, name, rows)))

    def _score(self, goal: Goal, name: str, rows: Ints | slice) -> Floats:
        """The score `[k]` of the loss or of one metric for some of the samples.

        That of a metric of all samples together is its value with the number of samples as its weight, `[2]`.
        """
        metric = goal.metrics.get(name)
        if metric is None or not metric.together:
            return np.asarray(self.sums[name][rows].sum(0))
        assert self.outputs_and_labels is not None
        index = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        outputs, labels = self.outputs_and_labels
        output = outputs[index]
        y = labels[index]
        if not len(y):
            return np.zeros(2)
        value = metric.of(output, y)
        if np.isnan(value):
            return np.zeros(2)
        return np.array([value * len(y), len(y)])


class Scorer:
    """Scores models of a `layout` by the metrics of a goal; `batch` samples pass through the model at once."""

    def __init__(self, module: nn.Module, layout: Layout, goal: Goal, problem: Problem, batch: int) -> None:
        self._module = copy.deepcopy(module).eval()
        self._layout = layout
        self.goal = goal
        self.problem = problem
        self._batch = batch
        self._together = any(metric.together for metric in goal.metrics.values())
        self._draws: bool | None = None  # unknown before the first samples

    @torch.no_grad()
    def outcomes(self, w: Tensor, samples: Samples, index: Ints | None = None) -> Outcomes:
        """The outcomes of the model `w` `[D]` for each sample. With `index` `[n]` it uses these samples only.

        A model that draws even in eval mode, such as a variational one, draws the same numbers in every call.
        """
        self._layout.bind(self._module, w)
        if not self._draws_in_evaluations(samples):
            before = torch_states()
            outcomes = self._outcomes(samples, index)
            if not all(map(torch.equal, before, torch_states())):
                raise ModelError(UNFORESEEN_DRAWS)
            return outcomes
        with draws_kept():
            seed_torch(torch.zeros((), dtype=torch.int64, device=w.device))
            return self._outcomes(samples, index)

    def _draws_in_evaluations(self, samples: Samples) -> bool:
        """Whether the model or the loss draws from PyTorch's generators in eval mode; it is tested on a first batch."""
        if self._draws is None:
            rows = np.arange(min(tried(self._batch), len(samples)))
            with draws_kept():
                before = torch_states()
                for x, y in _batches(samples, rows, len(rows)):
                    self._scored(x, y)
                self._draws = not all(map(torch.equal, before, torch_states()))
        return self._draws

    def _outcomes(self, samples: Samples, index: Ints | None) -> Outcomes:
        count = len(samples) if index is None else len(index)
        # One tensor for all: small tensors of single batches would lie between large ones and fragment the memory.
        rows: dict[str, Tensor] = {}
        outputs: list[Tensor] = []
        labels: list[Tensor] = []
        start = 0
        for x, y in _batches(samples, index, self._batch):
            scored = self._scored(x, y)
            for name, sums in self._sums(scored).items():
                if name not in rows:
                    rows[name] = torch.empty(count, sums.shape[1], dtype=sums.dtype, device=sums.device)
                rows[name][start : start + len(sums)] = sums
            if self._together:
                outputs.append(scored.output.cpu())
                labels.append(y.cpu())
            start += len(y)
        on_host = {name: sums.cpu().double().numpy() for name, sums in rows.items()}  # Apple's GPUs have no float64
        if not outputs:
            return Outcomes(on_host, None)
        return Outcomes(on_host, (torch.cat(outputs), torch.cat(labels)))

    def values(self, w: Tensor, samples: Samples) -> dict[str, float]:
        """The mean loss and all metrics of the model on samples, by name."""
        scores = self.outcomes(w, samples).total(self.goal, slice(None))
        return {name: float(value) for name, value in values_of(self.goal, scores).items()}

    def scores(self, w: Tensor, samples: Samples, groups: list[Ints]) -> Scores:
        """The scores of the model on each group of samples, `[groups, k]`; a sample in several groups passes once."""
        index = np.unique(np.concatenate([*groups, np.empty(0, dtype=np.int64)]))
        if not len(index):  # one sample passes for empty groups, and gives their scores a shape
            index = np.zeros(1, dtype=np.int64)
        self._layout.bind(self._module, w)
        totals: list[Scores] = []
        if self._draws_in_evaluations(samples):  # group by group, so that no group's draws depend on the others
            for group in groups:
                outcomes = self.outcomes(w, samples, group if len(group) else index)
                totals.append(outcomes.total(self.goal, slice(len(group))))
        else:
            outcomes = self.outcomes(w, samples, index)
            for group in groups:
                totals.append(outcomes.total(self.goal, np.searchsorted(index, group)))
        return {name: np.stack([total[name] for total in totals]) for name in totals[0]}

    def _scored(self, x: ModelInput, y: Tensor) -> Scored:
        output = call(self._module, self.problem.transform.inputs(x, self._layout.dtype))
        return self.goal.task.scored(output, y, self.goal.loss(output, y))

    def _sums(self, scored: Scored) -> dict[str, Tensor]:
        """What each sample of a batch adds to the sums of the loss and the metrics, `[B, k]`."""
        losses = scored.losses
        sums = {"loss": torch.stack([losses, torch.ones_like(losses)], dim=1)}
        for name, metric in self.goal.metrics.items():
            if not metric.together:
                sums[name] = metric.sums(scored)
        return sums


def values_of(goal: Goal, scores: Scores) -> Scores:
    """The loss and all metrics from their scores."""
    return {name: value_of(goal, name, scores[name]) for name in goal.names}


def value_of(goal: Goal, name: str, score: Floats) -> Floats:
    """The loss, or the metric of this name, from its score."""
    if name in goal.metrics:
        return goal.metrics[name].value(score)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.divide(score[..., 0], score[..., 1]))


def _batches(samples: Samples, index: Ints | None, size: int) -> Iterator[tuple[ModelInput, Tensor]]:
    """Copies of the samples, `size` at a time."""
    if index is None:
        yield from _batches_of_all(samples, size)
        return
    rows = torch.from_numpy(index).to(samples.y.device)
    if isinstance(samples.x, EncodedImages):
        yield from _batches_of_all(samples[rows], size)
        return
    for batch in torch.split(rows, size):
        yield samples.x[batch], samples.y[batch]


def _batches_of_all(samples: Samples, size: int) -> Iterator[tuple[ModelInput, Tensor]]:
    labels = torch.split(samples.y, size)
    for x, y in zip(encoded.split(samples.x, size), labels, strict=True):
        yield x, y.clone()
