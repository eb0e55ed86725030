"""Which runs of a sweep train the same rounds, and the plan that trains these once.

Two runs agree up to a round if nothing that they differ in has had an effect before it: observing averages never has
one, a broadcast has one from the round on in which clients receive its average, a schedule where it gives other
numbers. So the runs of a sweep form trees, whose stems are shared beginnings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..config import Experiment
from ..runs import Checkpoint
from .axes import PlannedRun

OBSERVERS = ("averages", "checkpoint", "records")
"""What an experiment says without an effect on its training."""


@dataclass(frozen=True, eq=False)
class Leg:
    """The rounds from `first` to `last` finished ones of one or more runs, trained as `experiment` into `folder`.

    A leg goes on from `parent`, if it has one. `names` says how the legs that follow find an average: its name here, by
    its name and settings in a run.
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
        """What the averages of this leg are called in the one before."""
        known = {} if self.parent is None else self.parent.names
        return {name: known[key] for key, name in self.names.items() if key in known}

    @property
    def rounds(self) -> int:
        """How many rounds it trains."""
        return self.last - self.first

    @property
    def span(self) -> str:
        """Its rounds as people count them, from 1."""
        return f"rounds {self.first + 1} to {self.last}" if self.rounds else "nothing to train"


@dataclass(frozen=True, eq=False)
class Plan:
    """The legs of a sweep, each after the one that it goes on from."""

    legs: list[Leg]
    runs: int
    asked: int

    @property
    def to_train(self) -> int:
        """How many rounds are trained."""
        return sum(leg.rounds for leg in self.legs)

    def __str__(self) -> str:
        return f"{self.runs} runs, {self.asked:,} rounds asked, {self.to_train:,} to train"


def plan(runs: Sequence[PlannedRun]) -> Plan:
    """The legs that train these runs, every round that some of them have in common once."""
    families: dict[str, list[_Course]] = {}
    for run in runs:
        course = _Course(run)
        families.setdefault(course.family, []).append(course)
    legs = [leg for courses in families.values() for leg in _legs(courses, 0, None)]
    return Plan(legs, len(runs), sum(run.experiment.rounds for run in runs))


class _Course:
    """A run with what decides on its training: in all rounds alike (`family`), and round by round (`effects`)."""

    def __init__(self, run: PlannedRun) -> None:
        self.name, self.experiment = run.name, run.experiment
        self.table = run.experiment.table()
        local = {key: value for key, value in self.table["local"].items() if key != "schedule"}
        rest = {key: value for key, value in self.table.items() if key not in (*OBSERVERS, "broadcast")}
        self.family = self.name if self.experiment.simulated else _text(rest | {"local": local})
        waits, acts, begins = self._broadcast()
        schedule, own = self.experiment.local.schedule, self.experiment.local
        self.effects = [
            (schedule.lr(t, own.lr), schedule.epochs(t, own.epochs), waits if t < begins else acts)
            for t in range(self.experiment.rounds)
        ]

    def key(self, average: str) -> str:
        """An average by its name and settings."""
        return _text([average, self.table["averages"][average]])

    def _broadcast(self) -> tuple[str, str, int]:
        """What the broadcast does before its round, what from then on, and that round; empty for nothing."""
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


def _legs(courses: list[_Course], first: int, parent: Leg | None) -> Iterator[Leg]:
    """The legs of runs that agree so far, and in round `first` as well if there is one."""
    rounds = courses[0].experiment.rounds
    if len(courses) == 1:
        course = courses[0]
        names = {course.key(name): name for name in course.experiment.averages}
        yield Leg(f"runs/{course.name}", course.experiment, first, rounds, (course.name,), names, parent)
        return
    last = next((t for t in range(first, rounds) if len({c.effects[t] for c in courses}) > 1), rounds)
    if last > first:
        parent = _shared(courses, first, last, parent)
        yield parent
    for branch in _branches(courses, last):
        yield from _legs(branch, last, parent)


def _branches(courses: list[_Course], t: int) -> list[list[_Course]]:
    """The runs by what they do in round `t`; one by one where the rounds are at an end."""
    found: dict[Any, list[_Course]] = {}
    for course in courses:
        found.setdefault(course.effects[t] if t < len(course.effects) else course.name, []).append(course)
    return list(found.values())


def _shared(courses: list[_Course], first: int, last: int, parent: Leg | None) -> Leg:
    """A leg that several runs have in common: the first one's experiment with the averages of all."""
    names: dict[str, str] = {}
    averages: dict[str, Any] = {}
    for course in courses:
        for name, average in course.experiment.averages.items():
            key = course.key(name)
            if key not in names:
                names[key] = _free(name, averages)
                averages[names[key]] = average
    keep = tuple(sorted({r for c in courses for r in c.experiment.checkpoint.keep if r <= last}))
    every = min(course.experiment.checkpoint.every for course in courses)
    own = courses[0].experiment
    broadcast = own.broadcast if courses[0].effects[first][2] else None
    experiment = replace(own, averages=averages, broadcast=broadcast, checkpoint=Checkpoint(every, keep))
    place = _text([experiment.table(), first, last, parent and parent.folder])
    folder = f"shared/{hashlib.sha256(place.encode()).hexdigest()[:12]}"
    return Leg(folder, experiment, first, last, tuple(c.name for c in courses), names, parent)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """The name, or the first of name-2, name-3 and so on that is not taken."""
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
