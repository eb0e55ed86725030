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
    """Evaluates models on the central test set, and on what the `clients` clients are `asked` to score."""

    def __init__(self, scorer: Scorer, clients: int, asked: SplitsOf) -> None:
        self._scorer = scorer
        self._problem = scorer.problem
        self._clients = clients
        self._asked = asked
        self._told: set[int] = set()

    def evaluate(self, w: Tensor, round: int, model: str, ask: Ask) -> list[Score]:
        """The metrics of the model `w` `[D]` on every split; clients that do not answer are left out."""
        found = [] if self._problem.test is None else [self._central(self._problem.test, w, round, model)]
        for job in SCORES:
            splits = self._asked.get(job, ())
            if not splits:
                continue
            places, answers = self._ask(job, w, round, ask)
            for split in splits if answers else ():
                scores = {name: answers[scored(split, name)] for name in self._scorer.goal.names}
                name = tuned(split) if job == "tune" else split
                found.append(Score(round=round, model=model, split=name, **self._at_clients(split, scores, places)))
        return found

    def _at_clients(self, split: Split, scores: Scores, places: Ints) -> dict[str, Any]:
        """The results on a split, from the scores `[C, k]` of the clients at some places."""
        goal = self._scorer.goal
        each = values_of(goal, scores)
        if split == "clients":
            values = {name: _mean(own) for name, own in each.items()}
        else:
            values = values_of(goal, {name: sums.sum(0) for name, sums in scores.items()})
        own = np.full(self._clients, np.nan)
        own[places] = each[goal.criterion.name]
        more = over_clients(own[places], scores["loss"][:, 1], goal.criterion.better)
        return _parted({name: float(value) for name, value in values.items()}) | {"more": more, "each": own}

    def _central(self, test: Samples, w: Tensor, round: int, model: str) -> Score:
        goal = self._scorer.goal
        outcomes = self._scorer.outcomes(w, test)
        numbers = {name: float(value) for name, value in values_of(goal, outcomes.total(goal, slice(None))).items()}
        more: dict[str, Any] = {}
        decides = goal.metrics.get(goal.criterion.name)
        whole = decides is not None and (decides.together or decides.of_classes)  # of one class it says nothing
        if test.y.dim() == 1 and self._problem.classes and not whole:
            more["classes"] = self._by_group(outcomes, test.y, self._problem.classes)
        if test.domain is not None:
            names = self._problem.domain_names or tuple(map(str, range(int(test.domain.max()) + 1)))
            more["domains"] = dict(zip(names, self._by_group(outcomes, test.domain, len(names)), strict=True))
        return Score(round=round, model=model, split="test", more=more, **_parted(numbers))

    def _by_group(self, outcomes: Outcomes, groups: Tensor, count: int) -> list[float | None]:
        """The criterion in each of `count` groups of samples; None for an empty group."""
        index = groups.cpu().numpy()
        of_groups = (np.flatnonzero(index == group) for group in range(count))
        values = [outcomes.criterion(self._scorer.goal, rows) if len(rows) else np.nan for rows in of_groups]
        return [None if np.isnan(value) else value for value in values]

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
        if missing.keys() - self._told:
            log.warning("evaluation after round %d: %s", round, no_answer(missing))
        self._told |= missing.keys()
        if not replies:
            return collector.ids[collector.accepted], {}
        names = replies[0].upload
        scores = {name: np.concatenate([reply.upload[name].numpy() for reply in replies]) for name in names}
        return collector.ids[collector.accepted], scores


def _mean(values: Floats) -> Floats:
    """The mean of the values that are defined."""
    defined = values[~np.isnan(values)]
    return np.asarray(defined.mean() if len(defined) else np.nan)


def _parted(numbers: dict[str, float]) -> dict[str, Any]:
    """The fields of `Score` for the loss and the metrics."""
    return {"loss": numbers["loss"], "values": {name: n for name, n in numbers.items() if name != "loss"}}
