"""The models of past rounds, each kept once for all averages that need it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakSet

from torch import Tensor

from ..settings.errors import FedsashError
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from ..vector.vector_files import VectorFile
from .moving_sum import MovingSum
from .places import Place

NOTHING_COMES: Mapping[int, Pieces] = {}


class NotKeptError(FedsashError, KeyError):
    """An average asks for a past model that is not kept for it."""

    def __init__(self, round: int) -> None:
        super().__init__(round)

    def __str__(self) -> str:
        cure = "retention() must give how many past models it needs, and needs(state) the rounds of those it has taken"
        return f"the average asks for the model of round {self.args[0]!r}, which is not kept for it: {cure}"


class NoPast(dict[int, Tensor]):
    """The past models of an average that needs none."""

    def __missing__(self, round: int) -> Tensor:
        raise NotKeptError(round)


class Trajectory:
    """The models `[d]` of some past rounds in a `Place`; a model stays as long as a `Past` needs it.

    `part` names the slice of the model, and the type in which it is kept if that is another one. `owner` is the only
    average that sees these vectors, or empty if all averages see the same. Two trajectories with the same part and the
    same owner hold the same vector for a round.
    """

    def __init__(self, place: Place, part: str = "all", owner: str = "") -> None:
        self.place = place
        self.part = part
        self.owner = owner
        self._pasts: WeakSet[Past] = WeakSet()  # a cycle would keep the models until a collection of garbage

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_pasts": list(self._pasts)}  # weak references can't be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _pasts=WeakSet(state["_pasts"]))

    @property
    def name(self) -> str:
        """Part and owner in one word that can be part of a file name."""
        return f"{self.part}.{self.owner}" if self.owner else self.part

    @property
    def rounds(self) -> list[int]:
        """The rounds whose models are kept, ascending."""
        return sorted(self.place.rounds)

    def share(self) -> Past:
        """A new `Past` of this trajectory, which needs no model yet."""
        past = Past(self)
        self._pasts.add(past)
        return past

    def apart(self, owner: str) -> Trajectory:
        """An empty trajectory like this one, for vectors that only `owner` sees."""
        return Trajectory(self.place.another(), self.part, owner)

    def move_on(self, round: int, w: Pieces) -> None:
        """Keep a copy of the model `w` `[d]` of `round` if a `Past` needs it, and drop what none needs any more."""
        needed = any(round in past.rounds for past in self._pasts)
        # First forget, so that the new model can take a row that is no longer needed.
        self.forget({round: w} if needed else {})
        if needed:
            self.put(round, w)

    def put(self, round: int, w: Tensor | Pieces) -> None:
        """Keep a copy of the model `w` `[d]` of `round`. Raises `OSError`, for example if the disk is full."""
        try:
            self.place.put(round, Pieces.of(w))
        except BaseException:  # such as Ctrl-C; sums have it already (see `forget`)
            for past in self._pasts:
                past.sum.clear()
            raise
        if any(past.sum.moves for past in self._pasts):
            self.place.expect(min(self.place.rounds))  # the first to go, and then it is subtracted

    def forget(self, coming: Mapping[int, Pieces] = NOTHING_COMES, wipe: bool = False) -> None:
        """Drop the models that no `Past` needs; with `wipe`, nothing of them stays in memory.

        `coming` is the model that will be put next, by its round (see `MovingSum.lose`).
        """
        needed: set[int] = set()
        for past in self._pasts:
            needed.update(past.rounds)
        leaving = {round: self.place[round] for round in self.place.rounds - needed}
        # A model that is rounded as it is put is not the one to add: sums are of the models as they are kept.
        added = {round: w for round, w in coming.items() if w.pieces[0].dtype == self.place.like.dtype}
        for past in self._pasts:
            past.sum.lose(leaving, past.rounds, added)
        for round in leaving:
            self.place.drop(round, wipe)


class Past(Mapping[int, Tensor]):
    """The models that one average needs, by their `rounds`: views `[d]` into a trajectory that averages share.

    A round that no average of the trajectory keeps raises `NotKeptError`, a `KeyError`; one that only others keep is
    given, since the sum may still have it. After `sum.clear()` all models are added up again when their
    mean is asked for next.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.rounds: Collection[int] = ()
        self.sum = MovingSum(trajectory.place.zeros)

    def __getitem__(self, round: int) -> Tensor:
        if round not in self.trajectory.place.rounds:
            raise NotKeptError(round)
        return self.trajectory.place[round]

    def __iter__(self) -> Iterator[int]:
        return iter(self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)

    def mean(self, like: Tensor) -> Tensor:
        """The mean `[d]` of all its models in the type and on the device of `like` (see `exact_sums.mean`)."""
        return self.sum.mean(self.rounds, self.__getitem__, like)

    def part(self, round: int) -> Vectors | VectorFile:
        """The model of a round as a part of a saved state."""
        return self.trajectory.place.part(round)

    def clear(self) -> None:
        """Need no models from now on."""
        self.rounds = ()
        self.sum.clear()
        self.trajectory.forget()

    def fill(self, rounds: Iterable[int], model: Callable[[int], Tensor | Path]) -> None:
        """Need the models of `rounds`. `model(round)` gives those that the trajectory does not have yet: a vector
        `[d]`, or a saved state's file of it."""
        self.rounds = tuple(rounds)
        self.sum.clear()
        place = self.trajectory.place
        for round in self.rounds:
            if round in place.rounds:
                continue
            source = model(round)
            if isinstance(source, Path):
                place.take(round, source)
            else:
                place.put(round, Pieces.of(source))
