"""The models of past rounds, each kept once for all averages that need it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from torch import Tensor

from ..basics.storage import Storage, rows
from .moving_sum import MovingSum
from .pieces import Pieces

NONE: Mapping[int, Pieces] = {}


class Trajectory:
    """The models `[d]` of some past rounds, one row each; a model stays as long as a `Past` needs it.

    `part` names the slice of the model. `owner` is the only average that sees these vectors, or empty if all averages
    see the same. Two trajectories with the same part and the same owner hold the same vector for a round.

    `capacity` is the expected largest number of models. They are rows like `w` `[d]` in `storage`, in `folder` if that
    is the disk (see `storage.rows`, also for the errors). If there are ever more models, another `capacity` rows are
    added.
    """

    def __init__(
        self, capacity: int, w: Tensor, storage: Storage, folder: Path | None = None, part: str = "all", owner: str = ""
    ) -> None:
        self.part, self.owner = part, owner
        like = w.detach().new_empty(1).expand_as(w)  # its shape, type and device, without its memory
        self._settings = (capacity, like, storage, folder)
        self._free = self._block()
        self._models: dict[int, Tensor] = {}
        self._pasts: list[Past] = []

    @property
    def name(self) -> str:
        """Part and owner in one word that can be part of a file name."""
        return f"{self.part}.{self.owner}" if self.owner else self.part

    @property
    def rounds(self) -> list[int]:
        """The rounds whose models are kept, ascending."""
        return sorted(self._models)

    @property
    def room(self) -> int:
        """The number of its rows, used and free."""
        return len(self._models) + len(self._free)

    def share(self) -> Past:
        """A new `Past` of this trajectory, which needs no model yet."""
        self._pasts.append(Past(self))
        return self._pasts[-1]

    def apart(self, owner: str) -> Trajectory:
        """An empty trajectory with the same settings, for vectors that only `owner` sees."""
        return Trajectory(*self._settings, part=self.part, owner=owner)

    def __contains__(self, round: int) -> bool:
        return round in self._models

    def __getitem__(self, round: int) -> Tensor:
        """The model `[d]` of a round, a view; raises `KeyError` if it is not kept."""
        return self._models[round]

    def needs(self, round: int) -> bool:
        """Whether any `Past` needs the model of `round`."""
        return any(round in past.rounds for past in self._pasts)

    def put(self, round: int, w: Tensor | Pieces) -> None:
        """Keep a copy of the model `w` `[d]` of `round`; it takes the row that was freed last."""
        if round not in self._models:
            self._free = self._free or self._block()
            self._models[round] = self._free.pop()
        Pieces.of(w).copy_to(self._models[round])

    def forget(self, coming: Mapping[int, Pieces] = NONE) -> list[Tensor]:
        """Drop the models that no `Past` needs; returns their rows `[d]`, unchanged, which the next models will use.

        `coming` is the model that will be put next, by its round (see `MovingSum.lose`).
        """
        needed: set[int] = set().union(*(past.rounds for past in self._pasts))
        freed = {round: self._models[round] for round in self._models.keys() - needed}
        for past in self._pasts:
            past.lose(freed, coming)
        for round in freed:
            self._free.append(self._models.pop(round))
        return list(freed.values())

    def _block(self) -> list[Tensor]:
        """New rows in reverse order, so that `pop` gives the first one."""
        return list(rows(*self._settings).unbind())[::-1]


class Past(Mapping[int, Tensor]):
    """The models that one average needs, by their `rounds`: views `[d]` into a trajectory that averages share."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.rounds: Collection[int] = ()
        self._sum = MovingSum()

    def __getitem__(self, round: int) -> Tensor:
        return self.trajectory[round]

    def __iter__(self) -> Iterator[int]:
        return iter(self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)

    def mean(self, like: Tensor) -> Tensor:
        """The exact mean `[d]` of all its models, rounded once to the type of `like`, on its device."""
        return self._sum.mean(self.rounds, self.trajectory.__getitem__, like)

    def lose(self, models: Mapping[int, Tensor], coming: Mapping[int, Pieces]) -> None:
        """Its trajectory is about to drop `models`, which it does not need (see `MovingSum.lose`)."""
        self._sum.lose(models, self.rounds, coming)

    def clear(self) -> None:
        """Need no models from now on."""
        self.rounds = ()
        self._sum.clear()
        self.trajectory.forget()

    def fill(self, rounds: Iterable[int], model: Callable[[int], Tensor]) -> None:
        """Need the models of `rounds`; `model(round)` gives those `[d]` that the trajectory does not have yet."""
        self.rounds = tuple(rounds)
        self._sum.clear()
        for round in self.rounds:
            if round not in self.trajectory:
                self.trajectory.put(round, model(round))
