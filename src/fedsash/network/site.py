"""One federation in time: the trips of its clients, and its server, which a scheduler moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from math import inf
from typing import Any

from simpy import Environment, Event

from ..vector.arrays import Vectors
from .learning import AnyModel, Learner, Start
from .log import Log
from .trip import Trip

Steps = Generator[Event, Any, Any]
"""A process of events, or a part of a process."""

BARREN = 1000
"""A run ends after so many trips in a row without an arrival (after one for each client, if that is more)."""
USELESS = 100
"""A run ends after so many uploads in a row that the guard refuses (after one for each client, if that is more)."""


class Site(ABC):
    """A federation's server and its `size` clients, for at most `rounds` steps of the server.

    Time is that of `env`; a kind of site says what moves it, and who is present. `stepped` is called after every step.
    `missing` are the clients whose trips have failed since it was cleared, and why. `seed` is the
    federation's, for draws of a scheduler's own.
    """

    def __init__(self, env: Environment, learner: Learner, size: int, rounds: float, seed: int) -> None:
        self.env = env
        self.learner = learner
        self.size = size
        self.rounds = rounds
        self.log = Log()
        self.seed = seed
        self.stepped: Callable[[Site], None] = lambda site: None
        self.missing: dict[int, str] = {}
        self.version = 0
        self.over: Event = env.event()
        self.why = ""
        self._numbers = [0] * size
        self._barren = 0
        self._useless = 0
        self._patience = max(BARREN, size)

    @property
    def running(self) -> bool:
        """Whether the run is not over."""
        return not self.over.triggered

    def newest(self) -> Start:
        """The model that a client is sent now, with its version."""
        return Start(self.learner.newest(), self.version)

    def model(self, trip: Trip) -> AnyModel | None:
        """The model that a trip has uploaded; None if no upload arrived, or one that can't be used."""
        if not trip.arrived:
            return None
        w = self.learner.train(trip.client, trip.number, trip.start)
        if w is None:
            self._useless += 1
        else:
            self._useless = 0
        if self._useless >= max(USELESS, self.size):
            self.end(f"no upload could be used in {self._useless} trips")
        return w

    def step(self, w: AnyModel) -> None:
        """Make `w` the global model."""
        self.learner.move(w)
        self.version += 1
        self.stepped(self)
        if self.version >= self.rounds:
            self.end()

    def end(self, why: str = "") -> None:
        """End the run; `why` gives the reason if it ends before its last round."""
        if self.running:
            self.why = why
            self.over.succeed()

    @abstractmethod
    def advance(self, done: Callable[[], bool]) -> None:
        """Let time pass until `done()` holds or the run is over."""

    @abstractmethod
    def here(self, client: int) -> bool:
        """Whether a client is present."""

    @abstractmethod
    def wait(self, clients: Sequence[int], until: float = inf) -> Steps:
        """Wait until one of these clients can make a trip, but not longer than `until`; for ever, if none ever can."""

    @abstractmethod
    def gone(self, clients: Sequence[int]) -> bool:
        """Whether none of these clients will ever be present again."""

    @abstractmethod
    def trip(self, client: int, start: Start, until: float = inf, download: bool = True, share: float = 1.0) -> Steps:
        """One trip of a client that is present. It ends at `until` at the latest. Returns the `Trip`.

        Without `download` the client has its model already. It works for the `share` of a training's duration.
        """

    def together(self, trips: Iterable[Steps]) -> Steps:
        """The results of trips that are made at the same time, when the last one is over."""
        processes = [self.env.process(trip) for trip in trips]
        yield self.env.all_of(processes)
        return [process.value for process in processes]

    @abstractmethod
    def deliver(self, client: int) -> Steps:
        """Send a client a model outside of its trips."""

    @abstractmethod
    def capacity(self) -> float | None:
        """How many uploads the link carries while one client trains, on average; None if nobody knows."""

    @abstractmethod
    def measures(self) -> dict[str, Any]:
        """The metrics so far (see `Log.measures`)."""

    @abstractmethod
    def timeline(self) -> dict[str, Any]:
        """What each client did and when (see `Log.timeline`)."""

    def saved(self) -> Vectors:
        """What a site needs to be replayed up to the last step, beside the seed."""
        return {}

    def _begin(self, client: int, start: Start) -> Trip:
        """The next trip of a client, which begins now."""
        number = self._numbers[client]
        self._numbers[client] += 1
        return Trip(client, number, start, self.env.now)

    def _end(self, trip: Trip) -> None:
        """Note a trip that ends now."""
        trip.ended = self.env.now
        self.log.trip(trip, self.version)
        if trip.arrived:
            self._barren = 0
        else:
            self._barren += 1
            self.missing[trip.client] = trip.why
        if self._barren >= self._patience:
            self.end(f"no upload has arrived in {self._barren} trips")
