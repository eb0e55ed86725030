"""The results of a reproduction's runs: their numbers as papers report them, or why they are missing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

from ...evaluation import History, Score, last_rounds, mean_or_none
from ...runs.records import Records
from ...runs.summaries import goal_of, over, stuck_text, summarise
from ...server.broadcast import Broadcast, Choice
from ...system import files
from ...tasks import Criterion
from ..config import Experiment
from ..sweeps import PlannedRun, Sweep
from .pick import AxisLabels, Pick

TO_TARGET = {"rounds_to_target": "round", "trips_to_target": "trips"}
"""The keys of the metrics that are counted until the target."""

OF_THE_END = ("value", "last_mean")
"""The statistics of a run's last evaluations. A model that was not in all of them could not be compared."""


@dataclass(frozen=True)
class Measurement:
    """One number from `runs` runs: their mean and, if there are several, their standard deviation (dividing by n - 1).

    `beyond` says that a run did not reach the target in that many rounds. In this case, and without runs, `value` is
    None. `why` says why runs are missing or stuck; it is empty if no run was `requested`. The number is printed
    with `digits` digits after the point. `chosen` is the label that was best, if it is the best of several. `values`
    has the number of each run, by its seed, and none where a run did not reach the target. `reached` has the rounds or
    trips of each run until the target, by its seed, and `unreached` all those of each run that did not reach it.
    """

    value: float | None = None
    std: float | None = None
    runs: int = 0
    beyond: int | None = None
    why: str = ""
    requested: bool = True
    digits: int = 2
    chosen: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    unreached: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.beyond is not None:
            return f"{self.beyond}+"
        if self.value is None:
            missing = self.requested and self.runs == 0
            return "not run" if missing else "-"
        number = f"{self.value:.{self.digits}f}"
        if self.std is None:
            return number
        return f"{number} ±{self.std:.{self.digits}f}"


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of `sweep` in the folder `out`. `missing` says why some of them were not trained.

    `labels` are all labels of each axis, also those of which no run is asked for. `others` are runs that are not asked
    for this time. They count if an earlier call has trained them. `scale` is that of the runs.
    """

    sweep: Sweep
    out: Path
    labels: AxisLabels
    missing: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    scale: str = "full"
    _read: dict[str, History] = field(default_factory=dict, repr=False)

    def runs(self, pick: Pick) -> list[PlannedRun]:
        """The finished runs of a pick."""
        return [run for run in self.selected(pick) if run.name in self.finished]

    def selected(self, pick: Pick) -> list[PlannedRun]:
        """All runs of a pick, finished or not."""
        runs = [run for run in self.sweep.runs if pick.takes(run.labels)]
        return [run for run in runs if run.name not in self.others or run.name in self.finished]

    @cached_property
    def finished(self) -> frozenset[str]:
        """The names of the finished runs. A run that was stopped has a summary of its rounds so far."""
        return frozenset(run.name for run in self.sweep.runs if self._ended(run))

    def _ended(self, run: PlannedRun) -> bool:
        file = self.folder(run) / "summary.json"
        return file.exists() and over(files.table(file), run.experiment.rounds)

    def criterion(self, pick: Pick) -> Criterion:
        """The criterion of a pick's runs, which have the same."""
        return goal_of(self.folder(self.runs(pick)[0]))[0]

    def folder(self, run: PlannedRun) -> Path:
        """A run's folder."""
        return self.out / "runs" / run.name

    def measured(self, pick: Pick) -> Measurement:
        """The number of a pick, over all runs that it selects."""
        selected = self.selected(pick)
        if not selected:
            return Measurement(requested=False)
        why = _once(self._why(run) for run in selected)
        finished = [run for run in selected if run.name in self.finished]
        if not finished:
            return Measurement(why=why)
        if pick.statistic in TO_TARGET:
            return self._until_target(finished, pick, why)
        values = []
        for run in finished:
            value = self._number(run, pick)
            if value is None:
                return Measurement(runs=len(finished), why="not a number in each of the last evaluations")
            values.append(value)
        return _averaged(values, finished, why)

    def _until_target(self, runs: Sequence[PlannedRun], pick: Pick, why: str) -> Measurement:
        """The rounds or trips of finished runs until the target."""
        values = []
        reached: dict[str, float] = {}
        unreached: dict[str, float] = {}
        for run in runs:
            seed = str(run.experiment.seed)
            number = self._number(run, pick)
            if number is None:
                unreached[seed] = self._last(run, pick)
            else:
                reached[seed] = number
                values.append(number)
        if not unreached:
            return replace(_averaged(values, runs, why), digits=0, reached=reached)
        if not all(unreached.values()):
            return Measurement(runs=len(runs), why="never evaluated")
        beyond = int(max(unreached.values()))
        return Measurement(runs=len(runs), beyond=beyond, why=why, reached=reached, unreached=unreached)

    def _last(self, run: PlannedRun, pick: Pick) -> float:
        """The rounds or trips of a run after which the model of a pick was last evaluated; 0 if it never was."""
        criterion, _ = goal_of(self.folder(run))
        counted = TO_TARGET[pick.statistic]
        scores = _of(self._history(run), pick.model, run.experiment, criterion)
        return max((float(getattr(score, counted) or 0) for score in scores), default=0.0)

    def best(self, pick: Pick, axis: str = "") -> Measurement:
        """The number of a pick with that of its labels of an `axis` which is best at it; the number itself without an
        axis.

        Rounds and trips to a target are better if there are fewer; a target that was not reached is worst. `why` is
        that of all labels.
        """
        if not axis:
            return self.measured(pick)
        labels = pick.where.get(axis, self.sweep.axes[axis])
        measured = {label: self.measured(pick | Pick({axis: (label,)})) for label in labels}
        requested = {label: number for label, number in measured.items() if number.requested}
        candidates = requested or measured
        why = _once(number.why for number in candidates.values())
        values = {label: number.value for label, number in candidates.items() if number.value is not None}
        if not values:
            most_runs = max(candidates.values(), key=lambda number: number.runs)
            return replace(most_runs, why=why)
        if pick.statistic in TO_TARGET or self.criterion(pick).better == "lower":
            chosen = min(values, key=values.__getitem__)
        else:
            chosen = max(values, key=values.__getitem__)
        return replace(candidates[chosen], why=why, chosen=chosen if len(candidates) > 1 else "")

    def curve(self, run: PlannedRun, model: str, by: str = "round") -> Mapping[int, float]:
        """A model's values by evaluated round or by client trips."""
        criterion, _ = goal_of(self.folder(run))
        scores = _of(self._history(run), model, run.experiment, criterion)
        return {getattr(score, by): score.get(criterion.name) for score in scores}

    def _number(self, run: PlannedRun, pick: Pick) -> float | None:
        """What a finished run says of a pick; None where it has no such number, or did not reach the target."""
        criterion, _ = goal_of(self.folder(run))
        scores = _of(self._history(run), pick.model, run.experiment, criterion)
        if scores and pick.statistic == "best":  # `evaluation.best_on` says where it is chosen
            scores += _of(self._history(run), pick.model, run.experiment, criterion, "held_out")
        counted = TO_TARGET.get(pick.statistic)
        if counted:
            for score in scores:
                if criterion.reached(score.get(criterion.name)):
                    return float(getattr(score, counted))
            return None
        if pick.statistic in OF_THE_END:
            scored = {score.round for score in scores}
            if not self._end(run, pick.statistic) <= scored:
                return None
        summary = summarise(History(scores), run.experiment.evaluation, criterion)["models"].get(pick.model, {})
        value = summary.get(pick.statistic)
        if pick.statistic == "best" and value:
            value = value["value"]
        return None if value is None else criterion.scale * float(value)

    def _end(self, run: PlannedRun, statistic: str) -> set[int]:
        """The rounds of the run's last evaluations, whatever models they were of."""
        rounds = {score.round: 0.0 for score in self._history(run).scores("test")}
        count = 1 if statistic == "value" else run.experiment.evaluation.last
        return set(last_rounds({"": rounds}, count))

    def _why(self, run: PlannedRun) -> str:
        """Why a run is missing, or since when it is stuck."""
        if run.name in self.finished:
            since = files.table(self.folder(run) / "summary.json").get("stuck")
            return stuck_text(since) if since else ""
        reason = self.missing.get(run.name)
        if reason:
            return reason
        return "not finished" if Records(self.folder(run)).begun else "not trained"

    def _history(self, run: PlannedRun) -> History:
        """The records of a run. Those of the last run are cached, since its numbers are needed one after another."""
        if run.name not in self._read:
            self._read.clear()
            self._read[run.name] = Records(self.folder(run)).load()
        return self._read[run.name]


def _averaged(values: Sequence[float], runs: Sequence[PlannedRun], why: str) -> Measurement:
    """The mean of the runs' values, and their standard deviation if there are several."""
    by_seed = {str(run.experiment.seed): value for run, value in zip(runs, values, strict=True)}
    mean = fmean(values)
    std = stdev(values) if len(values) > 1 else None
    return Measurement(mean, std, len(values), why=why, values=by_seed)


def _once(reasons: Iterable[str]) -> str:
    """The reasons in one line, each once; an empty one is none."""
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def _of(history: History, model: str, experiment: Experiment, criterion: Criterion, split: str = "test") -> list[Score]:
    """The scores of a model on a split. With several domains, its value is their unweighted mean, as in IMA.

    `"sent"` is the model that clients receive: the global model, and the average from the broadcast's start on. Where
    evaluations decide about it, it is what they chose.
    """
    choices = _choices(history, experiment.broadcast)
    scores = []
    for score in history.scores(split):
        source = _sent(choices, score.round) if model == "sent" else model
        if score.model == source:
            scores.append(_over_domains(replace(score, model=model), criterion))
    return scores


def _over_domains(score: Score, criterion: Criterion) -> Score:
    """The score with the mean over its domains as the value of the criterion, if it has several."""
    domains = score.more.get("domains")
    if not domains:
        return score
    mean = mean_or_none(domains.values())
    value = math.nan if mean is None else mean
    if criterion.name == "loss":
        return replace(score, loss=value)
    return replace(score, values={**score.values, criterion.name: value})


def _choices(history: History, broadcast: Broadcast | None) -> dict[int, Choice]:
    """The choice of a broadcast by the round from which on it holds: as it is set, and then as its evaluations were."""
    if broadcast is None or broadcast.order != "after":
        return {}
    choices = {0: broadcast.first()}
    for decision in history.decisions:
        choices[decision.round] = Choice(broadcast, decision.average, decision.start)
    return choices


def _sent(choices: Mapping[int, Choice], round: int) -> str:
    """The name of what clients receive after so many rounds."""
    begun = [begin for begin in choices if begin <= round]
    if not begun:
        return "model"
    choice = choices[max(begun)]
    return choice.average if choice.sends(round) else "model"


def safe(label: str) -> str:
    """A label as a part of a file's name."""
    return re.sub(r"[^\w-]+", "-", label).strip("-") or "-"
