"""Evaluation of models: on the central test set, and by the clients on their own samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np
from torch import Tensor

from ..basics.arrays import Floats
from ..basics.errors import check, check_count
from ..basics.shown import Shown
from ..basics.typed import typed
from ..data.samples import Samples
from ..exchange import Answers, PartialSum, Reply, Request
from ..tasks import Task
from .goal import Goal
from .scorer import Outcomes, Scorer, Scores, values_of

Split = Literal["held_out", "clients"]
"""The client samples on which a model is scored: the held-out samples, or those on which clients train."""


@dataclass(frozen=True)
@typed
class Evaluation:
    """When and on what the model and all averages are evaluated.

    Models are evaluated after every `every` rounds, and after each of the `last` last rounds. Means and standard
    deviations are reported over these last rounds. An adaptive broadcast decides after every `every` rounds. `metric`
    names the metric that decides: by default the first one that is given, or the task's first one. The first round
    that reaches its `target` is reported; an accuracy has the target 0.8 by default. `clients` adds the metrics on the
    clients' own training samples. `batch` samples pass through the model at once. `held_out` is the fraction of each
    client's samples on which no client trains; models are compared on these samples, to choose between them. An average
    with `buffers = "re-estimate"` gets the statistics of `calibration` training samples, evenly spaced.

    The best model of each name so far is kept as `NAME-best` if it can be chosen on `best_on`: by default only on
    held-out samples. With `"test"` it is chosen on the test set, and its own value there is too good.
    """

    every: int = 10
    last: int = 10
    metric: str = ""
    target: float | None = None
    clients: bool = False
    batch: int = 500
    held_out: float = 0.0
    calibration: int = 1000
    best_on: Literal["held_out", "test"] = "held_out"

    def __post_init__(self) -> None:
        check_count("Evaluation.every", self.every)
        check_count("Evaluation.last", self.last)
        check(self.target is None or isfinite(self.target), "Evaluation.target", self.target, "must be finite")
        right = "must be at least 0 and at most 0.9: clients need samples to train on"
        check(0 <= self.held_out <= 0.9, "Evaluation.held_out", self.held_out, right)
        check_count("Evaluation.batch", self.batch)
        check_count("Evaluation.calibration", self.calibration)

    def goal(self, task: Task, loss: Any = None, metrics: Mapping[str, Any] | None = None) -> Goal:
        """The goal of a training that is evaluated in this way; raises `SettingError` as `Goal.of` does."""
        return Goal.of(task, loss, metrics, decides=self.metric, target=self.target)

    def splits(self, held: bool) -> tuple[Split, ...]:
        """The splits that clients score; `held` says whether there are held-out samples."""
        asked: dict[Split, bool] = {"held_out": held, "clients": self.clients}
        return tuple(split for split, wanted in asked.items() if wanted)

    def due(self, round: int, rounds: int) -> bool:
        """Whether models are evaluated after `round` finished rounds of `rounds`."""
        return round % self.every == 0 or round > rounds - self.last


@dataclass(kw_only=True, repr=False)
class Metrics(Shown):
    """One model's results on one split, after `round` finished rounds: the mean loss, and all metrics as `values`.

    `metrics["accuracy"]` gives a metric by its name; shares lie in [0, 1].

    - Split `"test"`: the central test set. `more` holds the criterion by class, `classes` (unless it is a metric of all
      samples together), and by domain, `domains` (None where it is not defined);
    - `"held_out"`: the clients' held-out samples;
    - `"clients"`: the unweighted mean over the clients, on their training samples. `more` holds `worst_tenth`, the mean
      criterion of the worst tenth of the clients (at least one client);
    - `"broadcast"`: the decision of an adaptive broadcast; `model` is the chosen average.
    """

    round: int
    model: str
    split: str
    loss: float
    values: dict[str, float] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """The loss or a metric by its name."""
        return self.loss if name == "loss" else self.values[name]

    def row(self) -> dict[str, Any]:
        """The metrics as one flat record."""
        row = {"round": self.round, "model": self.model, "split": self.split}
        return row | self.values | {"loss": self.loss} | self.more


def scored(split: Split, name: str) -> str:
    """The name of the scores of a metric, or of the loss, that clients send for a split."""
    return f"{split}/{name}"


Ask = Callable[[Request], Answers]
"""Sends a request to clients and returns their answers."""


class Evaluator:
    """Evaluates models on the central test set, and on the `splits` that `clients` clients score on their samples."""

    def __init__(self, scorer: Scorer, clients: int, splits: tuple[Split, ...]) -> None:
        self._scorer, self._problem, self._clients, self._splits = scorer, scorer.problem, clients, splits

    def evaluate(self, w: Tensor, round: int, model: str, ask: Ask) -> list[Metrics]:
        """The metrics of the model `w` `[D]` on every split; clients that do not answer are left out."""
        found = [] if self._problem.test is None else [self._central(self._problem.test, w, round, model)]
        answers = self._ask(w, round, ask) if self._splits else {}
        for split in self._splits if answers else ():
            scores = {name: answers[scored(split, name)] for name in ("loss", *self._scorer.goal.metrics)}
            if split == "held_out":
                values = values_of(self._scorer.goal, {name: sums.sum(0) for name, sums in scores.items()})
                more: dict[str, Any] = {}
            else:
                each = values_of(self._scorer.goal, scores)
                values = {name: _mean(own) for name, own in each.items()}
                more = {"worst_tenth": self._worst_tenth(each[self._scorer.goal.criterion.name])}
            numbers = {name: float(value) for name, value in values.items()}
            found.append(Metrics(round=round, model=model, split=split, more=more, **_parted(numbers)))
        return found

    def _central(self, test: Samples, w: Tensor, round: int, model: str) -> Metrics:
        goal = self._scorer.goal
        outcomes = self._scorer.outcomes(w, test)
        numbers = {name: float(value) for name, value in values_of(goal, outcomes.total(goal, slice(None))).items()}
        more: dict[str, Any] = {}
        decides = goal.metrics.get(goal.criterion.name)
        together = decides is not None and decides.together  # the area under a curve has no value for a single class
        if test.y.dim() == 1 and self._problem.classes and not together:
            more["classes"] = self._by_group(outcomes, test.y, self._problem.classes)
        if test.domain is not None:
            names = self._problem.domain_names or tuple(map(str, range(int(test.domain.max()) + 1)))
            more["domains"] = dict(zip(names, self._by_group(outcomes, test.domain, len(names)), strict=True))
        return Metrics(round=round, model=model, split="test", more=more, **_parted(numbers))

    def _by_group(self, outcomes: Outcomes, groups: Tensor, count: int) -> list[float | None]:
        """The criterion in each of `count` groups of samples; None for an empty group."""
        index = groups.cpu().numpy()
        of_groups = (np.flatnonzero(index == group) for group in range(count))
        values = [outcomes.criterion(self._scorer.goal, rows) if len(rows) else np.nan for rows in of_groups]
        return [None if np.isnan(value) else value for value in values]

    def _worst_tenth(self, values: Floats) -> float:
        """The mean of the criterion over the worst tenth of the clients, at least one."""
        ascending = np.sort(values[~np.isnan(values)])
        if self._scorer.goal.criterion.better == "lower":
            ascending = ascending[::-1]
        return float(ascending[: max(len(ascending) // 10, 1)].mean()) if len(ascending) else float("nan")

    def _ask(self, w: Tensor, round: int, ask: Ask) -> Scores:
        """The scores of a model by the clients that answer, `[clients, k]` each.

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


def _mean(values: Floats) -> Floats:
    """The mean of the values that are defined."""
    defined = values[~np.isnan(values)]
    return np.asarray(defined.mean() if len(defined) else np.nan)


def _parted(numbers: dict[str, float]) -> dict[str, Any]:
    """The fields of `Metrics` for the loss and the metrics."""
    return {"loss": numbers["loss"], "values": {name: n for name, n in numbers.items() if name != "loss"}}
