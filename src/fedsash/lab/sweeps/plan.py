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
class Leg:
    """Rounds that one or more runs share: from the state after `first` rounds to the state after `last` rounds.

    The leg is trained as `experiment` into `folder`. It starts from the end of `parent`, if it has one. `names` maps
    an average's name and settings in a run to the name that this leg stores it under. Later legs look it up there.
    """

    folder: str
    experiment: Experiment
    first: int
    last: int
    runs: tuple[str, ...]
    names: Mapping[str, str] = field(repr=False)
    parent: Leg | None = None

    @property
    def renamed(self) -> dict[str, str]:
        """The names that this leg's averages have in the leg before."""
        known = {} if self.parent is None else self.parent.names
        return {name: known[key] for key, name in self.names.items() if key in known}

    @property
    def rounds(self) -> int:
        """The number of rounds that the leg trains."""
        return self.last - self.first

    @property
    def shared(self) -> bool:
        """Whether other legs continue it, so that it ends no run."""
        return self.folder.startswith("shared/")

    @property
    def span(self) -> str:
        """Its rounds in words, counted from 1."""
        return f"rounds {self.first + 1} to {self.last}" if self.rounds else "nothing to train"


@dataclass(frozen=True, eq=False)
class Plan:
    """The legs of a sweep. Each comes after the leg that it continues."""

    legs: list[Leg]
    runs: int
    asked: int

    @property
    def to_train(self) -> int:
        """The number of rounds that are trained."""
        return sum(leg.rounds for leg in self.legs)

    def __str__(self) -> str:
        return f"{self.runs} runs, {self.asked:,} rounds asked, {self.to_train:,} to train"


def plan(runs: Sequence[PlannedRun]) -> Plan:
    """The legs that train these runs. A round that several runs share is trained once."""
    families: dict[str, list[_Planned]] = {}
    for run in runs:
        one = _Planned(run)
        families.setdefault(one.family, []).append(one)
    legs = [leg for family in families.values() for leg in _legs(family, 0, None)]
    return Plan(legs, len(runs), sum(run.experiment.rounds for run in runs))


class _Effect(NamedTuple):
    """What acts in a round, and in an evaluation after it: the learning rate, the epochs and the broadcast."""

    lr: float
    epochs: Amount
    broadcast: str


class _Planned:
    """A run with the settings that affect its training: in all rounds (`family`), and in each round (`effects`)."""

    def __init__(self, run: PlannedRun) -> None:
        self.name = run.name
        self.experiment = run.experiment
        self.table = run.experiment.table()
        self.family = self.name if self.experiment.alone else self._settings()
        waits, acts, begins = self._broadcast()
        scheduled = self.experiment.local.scheduled
        rounds = range(self.experiment.rounds)
        self.effects = [_Effect(*scheduled(t), waits if t < begins else acts) for t in rounds]

    def _settings(self) -> str:
        """The settings that act in all rounds."""
        fixed = {key: value for key, value in self.table["local"].items() if key != "schedule"}
        rest = {key: value for key, value in self.table.items() if key not in (*OBSERVERS, "broadcast")}
        return _text(rest | {"local": fixed})

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
        return before, _text([broadcast.order, averages, broadcast.start]), broadcast.start - 1


def _legs(runs: list[_Planned], first: int, parent: Leg | None) -> Iterator[Leg]:
    """The legs of runs that are identical so far, and also in round `first` if there is one."""
    rounds = runs[0].experiment.rounds
    if len(runs) == 1:
        one = runs[0]
        names = {one.key(name): name for name in one.experiment.averages}
        yield Leg(f"runs/{one.name}", one.experiment, first, rounds, (one.name,), names, parent)
        return
    last = next((t for t in range(first, rounds) if len({c.effects[t] for c in runs}) > 1), rounds)
    if last > first:
        parent = _shared(runs, first, last, parent)
        yield parent
    for branch in _branches(runs, last):
        yield from _legs(branch, last, parent)


def _branches(runs: list[_Planned], t: int) -> list[list[_Planned]]:
    """The runs in groups that are identical in round `t`. After the last round, each run is a group."""
    found: dict[Any, list[_Planned]] = {}
    for one in runs:
        found.setdefault(one.effects[t] if t < len(one.effects) else one.name, []).append(one)
    return list(found.values())


def _shared(runs: list[_Planned], first: int, last: int, parent: Leg | None) -> Leg:
    """A leg that several runs share: the experiment of the first run with the averages of all runs."""
    names: dict[str, str] = {}
    averages: dict[str, Any] = {}
    for one in runs:
        for name, average in one.experiment.averages.items():
            key = one.key(name)
            if key not in names:
                names[key] = _free(name, averages)
                averages[names[key]] = average
    keep = tuple(sorted({r for c in runs for r in c.experiment.checkpoint.keep if r <= last}))
    every = min(one.experiment.checkpoint.every for one in runs)
    own = runs[0].experiment
    broadcast = own.broadcast if runs[0].effects[last - 1].broadcast else None
    experiment = replace(own, averages=averages, broadcast=broadcast, checkpoint=Checkpoint(every, keep), track=Track())
    engine = {"precision": own.engine.precision, "pieces": own.engine.pieces}  # the rest of it changes no numbers
    place = _text([experiment.table() | {"engine": engine}, first, last, parent and parent.folder])
    folder = f"shared/{hashlib.sha256(place.encode()).hexdigest()[:12]}"
    return Leg(folder, experiment, first, last, tuple(c.name for c in runs), names, parent)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """The name, or the first of name-2, name-3 and so on that is free."""
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
