"""The plan of a sweep: it trains every round that several runs share once.

Two runs are identical up to a round if no setting that differs has affected the training before it. Averages that only
observe never affect it. A broadcast does from the first round in which clients receive its average. A schedule does
from the first round in which it gives another number. The runs of a sweep therefore form trees: runs share the rounds
from the root to the round at which they branch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...client.settings import Amount
from ...runs import Checkpoint
from ...runs.callbacks import Track
from ..config import Experiment
from .axes import PlannedRun

OBSERVERS = ("averages", "checkpoint", "track")
"""The settings of an experiment that do not affect its training."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Rounds that one or more runs share: from the state after `first` rounds to the state after `last` rounds.

    The segment is trained as `experiment` into `folder`. It starts from the end of `parent`, if it has one. `names`
    maps an average's name and settings in a run to the name that this segment stores it under. Later segments look it
    up there.
    """

    folder: str
    experiment: Experiment
    first: int
    last: int
    runs: tuple[str, ...]
    names: Mapping[str, str] = field(repr=False)
    parent: Segment | None = None

    @property
    def renamed(self) -> dict[str, str]:
        """The names that this segment's averages have in the segment before."""
        if self.parent is None:
            return {}
        renamed = {}
        for key, name in self.names.items():
            if key in self.parent.names:
                renamed[name] = self.parent.names[key]
        return renamed

    @property
    def rounds(self) -> int:
        """The number of rounds that the segment trains."""
        return self.last - self.first

    @property
    def shared(self) -> bool:
        """Whether other segments continue it, so that it ends no run."""
        return self.folder.startswith("shared/")

    @property
    def span(self) -> str:
        """Its rounds in words, counted from 1."""
        if self.rounds == 0:
            return "nothing to train"
        return f"rounds {self.first + 1} to {self.last}"


@dataclass(frozen=True, eq=False)
class Plan:
    """The segments of a sweep. Each comes after the segment that it continues."""

    segments: list[Segment]
    runs: int
    rounds: int
    """Of all runs together, each round counted as often as runs have it."""

    @property
    def to_train(self) -> int:
        """The number of rounds that are trained."""
        return sum(segment.rounds for segment in self.segments)

    def __str__(self) -> str:
        return f"{self.runs} runs, {self.rounds:,} rounds asked, {self.to_train:,} to train"


def plan(runs: Sequence[PlannedRun]) -> Plan:
    """The segments that train these runs. A round that several runs share is trained once."""
    families: dict[str, list[_RunEffects]] = {}
    for planned in runs:
        run = _RunEffects(planned)
        families.setdefault(run.family, []).append(run)
    segments: list[Segment] = []
    for family in families.values():
        segments += _segments(family, 0, None)
    return Plan(segments, len(runs), sum(run.experiment.rounds for run in runs))


class _Effect(NamedTuple):
    """What acts in a round, and in an evaluation after it: the learning rate, the epochs and the broadcast."""

    lr: float
    epochs: Amount
    broadcast: str


class _RunEffects:
    """A run with the settings that affect its training: in all rounds (`family`), and in each round (`effects`)."""

    def __init__(self, run: PlannedRun) -> None:
        self.name = run.name
        self.experiment = run.experiment
        self.table = run.experiment.table()
        self.family = self.name if self.experiment.alone else self._settings()
        before, after, start = self._broadcast()
        self.effects = []
        for t in range(self.experiment.rounds):
            lr, epochs = self.experiment.local.scheduled(t)
            self.effects.append(_Effect(lr, epochs, before if t < start else after))

    def _settings(self) -> str:
        """The settings that act in all rounds."""
        settings = {key: value for key, value in self.table.items() if key not in (*OBSERVERS, "broadcast")}
        settings["local"] = {key: value for key, value in self.table["local"].items() if key != "schedule"}
        return _text(settings)

    def key(self, average: str) -> str:
        """An average by its name and settings."""
        return _text([average, self.table["averages"][average]])

    def _broadcast(self) -> tuple[str, str, int]:
        """The broadcast's effect before its first round, the effect from then on, and that round. Else empty."""
        broadcast = self.experiment.broadcast
        if broadcast is None:
            return "", "", 0
        averages = [self.key(name) for name in broadcast.averages]
        if broadcast.start == "auto" or broadcast.adaptive:
            return "", _text([self.table["broadcast"], averages]), 0
        if broadcast.order == "after":
            return "", _text(averages), broadcast.start
        before = _text([broadcast.order, averages])
        after = _text([broadcast.order, averages, broadcast.start])
        return before, after, broadcast.start - 1


def _segments(runs: list[_RunEffects], first: int, parent: Segment | None) -> Iterator[Segment]:
    """The segments of runs that are identical so far, and also in round `first` if there is one."""
    if len(runs) == 1:
        yield _last_segment(runs[0], first, parent)
        return
    last = _first_difference(runs, first)
    if last > first:
        parent = _shared(runs, first, last, parent)
        yield parent
    for branch in _branches(runs, last):
        yield from _segments(branch, last, parent)


def _last_segment(run: _RunEffects, first: int, parent: Segment | None) -> Segment:
    """The segment that ends a run, from round `first` on."""
    names = {run.key(name): name for name in run.experiment.averages}
    return Segment(f"runs/{run.name}", run.experiment, first, run.experiment.rounds, (run.name,), names, parent)


def _first_difference(runs: list[_RunEffects], first: int) -> int:
    """The first round from `first` on in which the runs are not identical; the number of rounds if there is none."""
    rounds = runs[0].experiment.rounds
    for t in range(first, rounds):
        effect = runs[0].effects[t]
        if any(run.effects[t] != effect for run in runs):
            return t
    return rounds


def _branches(runs: list[_RunEffects], t: int) -> list[list[_RunEffects]]:
    """The runs in groups that are identical in round `t`. After the last round, each run is a group."""
    groups: dict[_Effect | str, list[_RunEffects]] = {}
    for run in runs:
        key: _Effect | str = run.name
        if t < len(run.effects):
            key = run.effects[t]
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _shared(runs: list[_RunEffects], first: int, last: int, parent: Segment | None) -> Segment:
    """A segment that several runs share: the experiment of the first run with the averages of all runs."""
    names: dict[str, str] = {}
    averages: dict[str, Any] = {}
    keep: set[int] = set()
    for run in runs:
        for name, average in run.experiment.averages.items():
            key = run.key(name)
            if key not in names:
                names[key] = _free(name, averages)
                averages[names[key]] = average
        keep |= {round for round in run.experiment.checkpoint.keep if round <= last}
    every = min(run.experiment.checkpoint.every for run in runs)
    experiment = replace(
        runs[0].experiment,
        averages=averages,
        broadcast=runs[0].experiment.broadcast if runs[0].effects[last - 1].broadcast else None,
        checkpoint=Checkpoint(every, tuple(sorted(keep))),
        track=Track(),
    )
    folder = _shared_folder(experiment, first, last, parent)
    return Segment(folder, experiment, first, last, tuple(run.name for run in runs), names, parent)


def _shared_folder(experiment: Experiment, first: int, last: int, parent: Segment | None) -> str:
    """The folder of a shared segment, called after its settings: the same sweep continues in the same one."""
    # Of the engine only these two change numbers, so that another one goes on with the same rounds.
    engine = {"precision": experiment.engine.precision, "pieces": experiment.engine.pieces}
    before = parent.folder if parent is not None else None
    identity = _text([experiment.table() | {"engine": engine}, first, last, before])
    return f"shared/{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """The name, or the first of name-2, name-3 and so on that is free."""
    free = name
    number = 2
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def _text(value: Any) -> str:
    """A value as a text, the same for equal values."""
    return json.dumps(value, sort_keys=True)
