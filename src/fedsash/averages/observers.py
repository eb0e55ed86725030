"""All the averages of a run together, and the models of past rounds that they share."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.storage import Storage
from .base import Average, Retention
from .observer import Observer
from .pieces import Pieces
from .places import place_for
from .trajectory import NoPast, Past, Trajectory

log = logging.getLogger("fedsash")


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
            if (retention := observer.average.retention()) is not None:
                part = observer.part(w) + ("" if retention.kept_as == "model" else f"+{retention.kept_as}")
                key = part, name if name in self._apart else "", retention.storage
                groups.setdefault(key, {})[name] = retention
        past: dict[str, Past] = {}
        for (part, owner, storage), group in groups.items():
            name, keeps = next(iter(group.items()))
            place = place_for(_capacity(group.values()), _kept(self._observers[name].slice(w), keeps), storage, folder)
            past |= {name: each.share() for each in [Trajectory(place, part, owner)] for name in group}
        # The models come first: if they have no room, nothing else has been filled with numbers.
        return {name: observer.init(w) for name, observer in self._observers.items()}, past

    def begun(self, name: str, w: Tensor) -> Vectors:
        """The state of an average before the first model that it observes, where `w` `[D]` is the model before it."""
        return self._observers[name].init(w)

    def observe(self, states: AverageStates, w: Tensor | Pieces, round: int, *, apart: str | None = None) -> None:
        """Show the model `w` `[D]` of `round` (1 = the first) to all averages except those in `apart`, in place.

        With a name, show `w` to this average alone, one of those in `apart`. Rounds must increase. An average leaves
        out a slice with a value that is not finite, with a warning, because a running sum could never lose that value
        again.
        """
        names = [name for name in self._observers if name not in self._apart] if apart is None else [apart]
        if not names:
            return
        pieces = Pieces.of(w)
        left_out = self.not_finite(names, pieces, round)
        if left_out:
            log.warning("round %d: the model is not finite; left out of %s", round, ", ".join(sorted(left_out)))
        self.take([name for name in names if name not in left_out], states, pieces, round)

    def count(self, states: AverageStates, name: str) -> int:
        """How many models are in an average."""
        return self._observers[name].average.count(states.averages[name])

    def value(self, states: AverageStates, name: str, w: Tensor) -> Tensor:
        """The current model `w` `[D]` with its slice replaced by the average `name`, as a new vector `[D]`."""
        return self._observers[name].value(states.averages[name], w, states.past.get(name, NoPast()))

    def values(self, states: AverageStates, w: Tensor) -> dict[str, Tensor]:
        """The values `[D]` of all averages that have seen a model, by their names."""
        return {name: self.value(states, name, w) for name in self._observers if self.count(states, name)}

    def retract(self, states: AverageStates, name: str, round: int) -> None:
        """Remove the model of `round` from an average, and delete it unless another average needs it.

        Raises `ValueError` if the average does not keep that model, or keeps no single models.
        """
        average, state = self._observers[name].average, states.averages[name]
        past = states.past.get(name)
        average.retract(state, round, past or NoPast())
        if past is not None:
            past.rounds = average.needs(state)
            past.trajectory.forget(wipe=True)

    def not_finite(self, names: Collection[str], w: Pieces, round: int) -> set[str]:
        """Which of the averages leave out the model `w` `[D]` of `round`: their slice is not finite."""
        taking = {name: tuple(self._observers[name].ranges) for name in self._taking(names, round)}
        finite = {ranges: w.cut(ranges).finite() for ranges in set(taking.values())}
        return {name for name, ranges in taking.items() if not finite[ranges]}

    def take(self, names: Iterable[str], states: AverageStates, w: Pieces, round: int) -> None:
        """Show the model `w` `[D]` of `round` to these averages, in place; their slices must be finite."""
        used: dict[Trajectory, Pieces] = {}
        for name in self._taking(names, round):
            observer, past = self._observers[name], states.past.get(name)
            average, state, own = observer.average, states.averages[name], w.cut(observer.ranges)
            average.take(state, own, round, past or NoPast())
            _check_tensors(name, average, state)
            if past is not None:
                past.rounds = average.needs(state)
                used[past.trajectory] = own
        for trajectory, piece in used.items():
            needed = trajectory.needs(round)
            # First forget, so that the new model can take a row that is no longer needed.
            trajectory.forget({round: piece} if needed else {})
            if needed:
                trajectory.put(round, piece)

    def _taking(self, names: Iterable[str], round: int) -> list[str]:
        """Those of the averages that observe the model of `round`."""
        return [name for name in names if self._observers[name].average.observes(round)]


def _check_tensors(name: str, average: Average, state: Vectors) -> None:
    """Raise `TypeError` if an average of one's own keeps anything but tensors, such as the pieces that it is given."""
    for key, value in state.items():
        if not isinstance(value, Tensor):
            how = "; of the model keep w.whole().clone()" if isinstance(value, Pieces) else ""
            it = f"{type(average).__name__}.take: state[{key!r}]"
            raise TypeError(f"averages.{name}: {it} must be a tensor, is {type(value).__name__}{how}")


def _kept(w: Tensor, keeps: Retention) -> Tensor:
    """A vector like the models `w` `[d]` as they are kept; its numbers mean nothing."""
    return w if keeps.kept_as == "model" else w.new_empty(1, dtype=getattr(torch, keeps.kept_as)).expand_as(w)


def _capacity(group: Iterable[Retention]) -> int:
    """How many models some averages need together: those with the same `every` share theirs, so the largest counts."""
    largest: dict[int, int] = {}
    for keeps in group:
        largest[keeps.every] = max(keeps.size, largest.get(keeps.every, 0))
    return sum(largest.values())
