"""The evaluator: it scores models on the central test set, and asks clients to score them on their own samples."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from ..client.messages import SCORES, Answers, Collector, Job, Request, no_answer
from ..data.samples import Samples
from ..evaluation.over_clients import over_clients
from ..evaluation.records import Score
from ..evaluation.scorer import Outcomes, Scorer, Scores, values_of
from ..evaluation.settings import Split, SplitsOf, scored, tuned
from ..vector.arrays import Floats, Ints
from ..vector.spaces import Download, WholeModel

log = logging.getLogger("fedsash")

Ask = Callable[[Request], Answers]
"""Sends a request to clients and returns their answers."""


class Evaluator:
    """Evaluates models on the central test set, and on the `splits` that the `clients` clients score in each job."""

    def __init__(self, scorer: Scorer, clients: int, splits: SplitsOf) -> None:
        self._scorer = scorer
        self._problem = scorer.problem
        self._clients = clients
        self._splits = splits
        self._logged: set[int] = set()

    def evaluate(self, w: Tensor, round: int, model: str, ask: Ask) -> list[Score]:
        """The metrics of the model `w` `[D]` on every split; clients that do not answer are left out."""
        scores: list[Score] = []
        if self._problem.test is not None:
            scores.append(self._central(self._problem.test, w, round, model))
        for job in SCORES:
            splits = self._splits.get(job, ())
            if not splits:
                continue
            places, answers = self._ask(job, w, round, ask)
            if not answers:
                continue
            for split in splits:
                sums = {name: answers[scored(split, name)] for name in self._scorer.goal.names}
                result = self._at_clients(split, sums, places)
                split_name: str = split
                if job == "tune":
                    split_name = tuned(split)
                scores.append(Score(round=round, model=model, split=split_name, **result))
        return scores

    def _at_clients(self, split: Split, scores: Scores, places: Ints) -> dict[str, Any]:
        """The results on a split, from the scores `[C, k]` of the clients at some places.

        Metrics are of all samples together, but on "clients" they are means over the clients' own values.
        """
        goal = self._scorer.goal
        each = values_of(goal, scores)
        if split == "clients":
            values = {name: _mean(of_metric) for name, of_metric in each.items()}
        else:
            totals = {name: sums.sum(0) for name, sums in scores.items()}
            values = values_of(goal, totals)
        of_clients = each[goal.criterion.name]
        more = over_clients(of_clients, scores["loss"][:, 1], goal.criterion.better)
        criterion = np.full(self._clients, np.nan)
        criterion[places] = of_clients
        return {**_loss_and_metrics(values), "more": more, "each": criterion}

    def _central(self, test: Samples, w: Tensor, round: int, model: str) -> Score:
        """The results on the central test set, also for each of its classes and domains."""
        goal = self._scorer.goal
        outcomes = self._scorer.outcomes(w, test)
        values = values_of(goal, outcomes.total(goal, slice(None)))
        more: dict[str, Any] = {}
        decides = goal.metrics.get(goal.criterion.name)
        whole = decides is not None and (decides.together or decides.of_classes)  # of one class it says nothing
        if test.y.dim() == 1 and self._problem.classes and not whole:
            more["classes"] = self._by_group(outcomes, test.y, self._problem.classes)
        if test.domain is not None:
            names = self._problem.domain_names
            if not names:
                names = tuple(map(str, range(int(test.domain.max()) + 1)))
            of_domains = self._by_group(outcomes, test.domain, len(names))
            more["domains"] = dict(zip(names, of_domains, strict=True))
        return Score(round=round, model=model, split="test", more=more, **_loss_and_metrics(values))

    def _by_group(self, outcomes: Outcomes, groups: Tensor, count: int) -> list[float | None]:
        """The criterion in each of `count` groups of samples; None where it is not defined, as for an empty group."""
        index = groups.cpu().numpy()
        values: list[float | None] = []
        for group in range(count):
            rows = np.flatnonzero(index == group)
            value = np.nan
            if len(rows):
                value = outcomes.criterion(self._scorer.goal, rows)
            if np.isnan(value):
                values.append(None)
            else:
                values.append(value)
        return values

    def _ask(self, job: Job, w: Tensor, round: int, ask: Ask) -> tuple[Ints, Scores]:
        """The places of the clients that answer, and their scores of a model, `[C, k]` each.

        The log says who does not answer and why, for each client once. Raises `RuntimeError` if a client does not
        answer once, or with a `PartialSum`.
        """
        collector = Collector(np.arange(self._clients))
        request = Request(
            job=job,
            round=round,
            ids=collector.ids,
            sent=WholeModel(w),
            server_state=Download({}),
        )
        replies = collector.replies(ask(request))
        missing = collector.missing  # places and numbers are the same, since all clients are asked
        if missing.keys() - self._logged:
            log.warning("evaluation after round %d: %s", round, no_answer(missing))
        self._logged |= missing.keys()
        scores: Scores = {}
        if replies:
            for name in replies[0].upload:
                of_replies = [reply.upload[name].numpy() for reply in replies]
                scores[name] = np.concatenate(of_replies)
        return collector.ids[collector.accepted], scores


def _mean(values: Floats) -> Floats:
    """The mean of the values that are defined; NaN if none is."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return np.asarray(np.nan)
    return np.asarray(defined.mean())


def _loss_and_metrics(values: Scores) -> dict[str, Any]:
    """The fields of `Score` for the loss and the metrics, as plain numbers."""
    metrics = {name: float(value) for name, value in values.items()}
    loss = metrics.pop("loss")
    return {"loss": loss, "values": metrics}
