"""The averages of a run: each applied to its slice of the model, and the models of past rounds that they share."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ..settings.errors import check
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from ..vector.pieces import Pieces
from ..vector.storage import Storage
from .base import Average, Retention
from .places import place_for
from .trajectory import NoPast, Past, Trajectory

log = logging.getLogger("fedsash")


@dataclass(frozen=True)
class Observer:
    """Applies an average to a slice of the model's vector; the rest of its value is the current model.

    `ranges` are the ascending index ranges of the slice in `w` `[D]` (WiMA's Table 5: a window over the classifier
    only, or over the feature extractor only). Raises `ValueError` if they are not ascending, or empty. `init` and
    `value` are those of `Average`, for whole models `[D]`; `past` holds slices `[d]`.
    """

    average: Average
    ranges: list[tuple[int, int]]

    def __post_init__(self) -> None:
        bounds = [bound for pair in self.ranges for bound in pair]
        ascending = bool(bounds) and bounds[0] >= 0 and bounds == sorted(bounds)
        check(ascending, "Observer.ranges", self.ranges, "must be ascending ranges (start, stop), at least one")

    @classmethod
    def of(cls, average: Average, layout: Layout, stays: Collection[str] = ()) -> Observer:
        """The average of its part of models with this layout, without the tensors that `stays` names.

        Raises `SettingError` if they have no such part, or if nothing of it is left.
        """
        statistics = average.averages_statistics
        part = layout.ranges(average.part, statistics=statistics)
        requirement = (
            "has nothing but running statistics, which this average does not take: buffers = 'average' takes them"
        )
        check(bool(part), "part", average.part, requirement)
        ranges = layout.ranges(average.part, statistics=statistics, but=stays)
        check(bool(ranges), "part", average.part, "stays with the clients: name a part that they share")
        return cls(average, ranges)

    def init(self, w: Tensor) -> Vectors:
        """The average's state for models like `w` `[D]`."""
        return self.average.init(self.slice(w))

    def value(self, state: Vectors, w: Tensor, past: Mapping[int, Tensor]) -> Tensor:
        """The current model `w` `[D]` with its slice replaced by the average, as a new vector `[D]`."""
        mean = self.average.value(state, self.slice(w), past)
        if mean.shape == w.shape:
            return mean
        whole = w.detach().clone()
        for (start, stop), piece in zip(self.ranges, torch.split(mean, self._lengths()), strict=True):
            whole[start:stop] = piece
        return whole

    def slice(self, w: Tensor) -> Tensor:
        """The slice `[d]` of a model `[D]`; it is a view if it is a single range."""
        pieces = [w[start:stop] for start, stop in self.ranges]
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat(pieces)

    def part(self, w: Tensor) -> str:
        """A short name of the slice of models like `w` `[D]`: `"all"` for the whole model, else a hash of ranges."""
        if self._lengths() == [len(w)]:
            return "all"
        return hashlib.sha256(json.dumps(self.ranges).encode()).hexdigest()[:12]

    def _lengths(self) -> list[int]:
        return [stop - start for start, stop in self.ranges]


class AverageStates(Protocol):
    """An object that holds the states and the past models of averages, by their names; for example a run's `State`."""

    averages: dict[str, Vectors]
    past: dict[str, Past]


class Observers:
    """Averages by their names, each applied to its slice of the model.

    Averages of the same slice, storage and type share one trajectory, which keeps the model of each needed round
    once. The averages in `apart` observe other vectors than the rest: a broadcast shows them the clients' mean before
    the server optimiser's step. So each of them has its own trajectory.
    """

    def __init__(self, observers: Mapping[str, Observer], apart: Collection[str] = ()) -> None:
        self._observers = dict(observers)
        self._apart = frozenset(apart)

    def init(self, w: Tensor, folder: Path | None = None) -> tuple[dict[str, Vectors], dict[str, Past]]:
        """The states of the averages before the first round, for models like `w` `[D]`, and their past models.

        These are the `averages` and the `past` of `AverageStates`. An average that needs no past models has no `past`.
        Models on disk lie in `folder`. Raises `OSError` if there is not enough free disk space for them.
        """
        groups: dict[tuple[str, str, Storage], dict[str, Retention]] = {}
        for name, observer in self._observers.items():
            retention = observer.average.retention()
            if retention is None:
                continue
            part = observer.part(w)
            if retention.kept_as != "model":
                part += f"+{retention.kept_as}"
            owner = name if name in self._apart else ""
            groups.setdefault((part, owner, retention.storage), {})[name] = retention
        # The places of models come first: if there is no room for them, no state has been filled with numbers.
        past: dict[str, Past] = {}
        for (part, owner, storage), group in groups.items():
            first = next(iter(group))
            like = _as_kept(self._observers[first].slice(w), group[first])
            place = place_for(_capacity(group.values()), like, storage, folder)
            trajectory = Trajectory(place, part, owner)
            for name in group:
                past[name] = trajectory.share()
        states = {name: observer.init(w) for name, observer in self._observers.items()}
        return states, past

    def begun(self, name: str, w: Tensor) -> Vectors:
        """The state of an average before the first model that it observes, where `w` `[D]` is the model before it."""
        return self._observers[name].init(w)

    def observe(self, states: AverageStates, w: Tensor | Pieces, round: int, *, apart: str | None = None) -> None:
        """Show the model `w` `[D]` of `round` (1 = the first) to all averages except those in `apart`, in place.

        With a name, show `w` to this average alone, one of those in `apart`. Rounds must increase. An average leaves
        out a slice with a value that is not finite, with a warning, because a running sum could never lose that value
        again.
        """
        names = [name for name in self._observers if name not in self._apart]
        if apart is not None:
            names = [apart]
        if not names:
            return
        pieces = Pieces.of(w)
        skipping = self.not_finite(names, pieces, round)
        if skipping:
            log.warning("round %d: the model is not finite; left out of %s", round, ", ".join(sorted(skipping)))
        taking = [name for name in names if name not in skipping]
        self.take(taking, states, pieces, round)

    def count(self, states: AverageStates, name: str) -> int:
        """How many models are in an average."""
        return self._observers[name].average.count(states.averages[name])

    def value(self, states: AverageStates, name: str, w: Tensor) -> Tensor:
        """The current model `w` `[D]` with its slice replaced by the average `name`, as a new vector `[D]`."""
        return self._observers[name].value(states.averages[name], w, states.past.get(name, NoPast()))

    def values(self, states: AverageStates, w: Tensor) -> dict[str, Tensor]:
        """The values `[D]` of all averages that have seen a model, by their names."""
        begun = [name for name in self._observers if self.count(states, name)]
        return {name: self.value(states, name, w) for name in begun}

    def retract(self, states: AverageStates, name: str, round: int) -> None:
        """Remove the model of `round` from an average, and delete it unless another average needs it.

        Raises `ValueError` if the average does not keep that model, or keeps no single models.
        """
        average = self._observers[name].average
        state = states.averages[name]
        past = states.past.get(name)
        average.retract(state, round, NoPast() if past is None else past)
        if past is not None:
            past.rounds = average.needs(state)
            past.trajectory.forget(wipe=True)

    def not_finite(self, names: Collection[str], w: Pieces, round: int) -> set[str]:
        """Which of the averages leave out the model `w` `[D]` of `round`: their slice is not finite."""
        finite: dict[tuple[tuple[int, int], ...], bool] = {}  # by slice: averages of the same one ask once
        skipping: set[str] = set()
        for name in self._observing(names, round):
            ranges = tuple(self._observers[name].ranges)
            if ranges not in finite:
                finite[ranges] = w.cut(ranges).finite()
            if not finite[ranges]:
                skipping.add(name)
        return skipping

    def take(self, names: Iterable[str], states: AverageStates, w: Pieces, round: int) -> None:
        """Show the model `w` `[D]` of `round` to these averages, in place; their slices must be finite."""
        slices: dict[Trajectory, Pieces] = {}
        for name in self._observing(names, round):
            observer = self._observers[name]
            average = observer.average
            state = states.averages[name]
            past = states.past.get(name)
            part = w.cut(observer.ranges)
            average.take(state, part, round, NoPast() if past is None else past)
            _check_tensors(name, average, state)
            if past is not None:
                past.rounds = average.needs(state)
                slices[past.trajectory] = part
        # Only now: all averages of a trajectory have said which of its models they still need.
        for trajectory, part in slices.items():
            trajectory.move_on(round, part)

    def _observing(self, names: Iterable[str], round: int) -> list[str]:
        """Those of the averages that observe the model of `round`."""
        return [name for name in names if self._observers[name].average.observes(round)]


def _check_tensors(name: str, average: Average, state: Vectors) -> None:
    """Raise `TypeError` if an average of one's own keeps anything but tensors, such as the pieces that it gets."""
    for key, value in state.items():
        if isinstance(value, Tensor):
            continue
        problem = f"state[{key!r}] must be a tensor, is {type(value).__name__}"
        if isinstance(value, Pieces):
            problem += "; of the model keep w.whole().clone()"
        raise TypeError(f"averages.{name}: {type(average).__name__}.take: {problem}")


def _as_kept(w: Tensor, retention: Retention) -> Tensor:
    """A vector like the models `w` `[d]` as they are kept; its numbers mean nothing."""
    if retention.kept_as == "model":
        return w
    dtype = getattr(torch, retention.kept_as)
    return w.new_empty(1, dtype=dtype).expand_as(w)  # without the memory of a whole vector


def _capacity(group: Iterable[Retention]) -> int:
    """How many models some averages need together: those with the same `every` share theirs, so the largest counts."""
    largest: dict[int, int] = {}
    for retention in group:
        largest[retention.every] = max(retention.size, largest.get(retention.every, 0))
    return sum(largest.values())
