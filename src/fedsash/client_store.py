"""Where client state is between two rounds: rows at the server, objects in a cluster, or versions at the clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from .basics.arrays import Ints, Objects, Vectors, stacked
from .basics.shown import Shown

Lineage: TypeAlias = tuple[tuple[int, str], ...]
"""The runs that a run consists of, since a fork continues another run: the first round of each, and its id."""


@dataclass(eq=False)
class Handle(ABC):
    """A handle on the state of one client that stays where clients train, for as long as this object lives.

    `saved` reads the server's copy of it; None if it was not saved since it was made.
    """

    saved: Callable[[], Vectors] | None = None

    @abstractmethod
    def vectors(self) -> Vectors:
        """The state, brought to this process. Raises `WorkerError` if it was lost before it was saved."""


@dataclass(eq=False)
class Copy(Handle):
    """A handle on a state of which only the server has a copy, `saved`."""

    def vectors(self) -> Vectors:
        assert self.saved is not None
        return self.saved()


class ClientTicket(Shown, ABC):
    """With what a request's clients find their state: the state itself, or where it is."""

    @property
    def own(self) -> Vectors:
        """The client state `[s, ...]` that the ticket contains; nothing if it is elsewhere."""
        return {}

    @abstractmethod
    def only(self, places: slice | Ints) -> ClientTicket:
        """The ticket of the clients at these places of the request."""

    def gathered(self) -> ClientTicket:
        """The same ticket with the state behind handles, brought to this process."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class StateRows(ClientTicket):
    """The client state itself: `rows` `[s, ...]`, empty if clients remember nothing."""

    rows: Vectors = field(default_factory=dict)

    @property
    def own(self) -> Vectors:
        return self.rows

    def only(self, places: slice | Ints) -> StateRows:
        return StateRows({name: rows[places] for name, rows in self.rows.items()})


@dataclass(frozen=True, eq=False, repr=False)
class StateHandles(ClientTicket):
    """`handles` `[s]` on client state that stays where clients train."""

    handles: Objects

    def only(self, places: slice | Ints) -> StateHandles:
        return StateHandles(self.handles[places])

    def gathered(self) -> StateRows:
        return StateRows(stacked([handle.vectors() for handle in self.handles]))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StateVersions(ClientTicket):
    """The versions of the state that clients keep themselves.

    - `last` `[s]`: the version of each client's state, the round after which it was last accepted, 0 if never. The
      client continues from this version. Anything later was refused or lost, and does not count;
    - `oldest`: the run is never set back to a round before this one;
    - `lineage`: the runs that this run consists of; that of a fork begins with the lineage of its source.
    """

    last: Ints
    oldest: int = 0
    lineage: Lineage = ()

    def only(self, places: slice | Ints) -> StateVersions:
        return StateVersions(last=self.last[places], oldest=self.oldest, lineage=self.lineage)

    def run_of(self, version: int) -> str:
        """The id of the run that made a version of client state, so that two runs do not mix their versions."""
        return next((run for first, run in reversed(self.lineage) if first < version), "")
