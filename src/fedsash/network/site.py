"""One federation on a network: its clients' trips, and its server, which a scheduler moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simpy import Environment, Event

from .clients import Population
from .learning import AnyModel, Learner
from .links import Channel
from .log import Log
from .settings import Network

Steps = Generator[Event, Any, Any]
"""A process of the simulation, or a part of one."""

BARREN = 1000
"""So many trips in a row (one a client, if that is more) without a single arrival end a run."""


class Start(NamedTuple):
    """A model `w`, and the version of it: how many steps the server had made."""

    w: AnyModel
    version: int


@dataclass(slots=True)
class Trip:
    """One client trip: a client gets a model, trains, and uploads what it has made of it.

    It began at `began`, its training was over at `trained`, and all at `ended`; `number` counts the client's trips.
    `failures` of its uploads were refused or given up; `why` says why none has arrived, if none has. `waited` is the
    time from `trained` to the arrival beyond what the upload would have taken alone, at the first attempt.
    """

    client: int
    number: int
    start: Start
    began: float
    trained: float = math.inf
    ended: float = math.inf
    failures: int = 0
    arrived: bool = False
    waited: float = 0.0
    why: str = ""

    @property
    def delay(self) -> float:
        """From the end of the training to the end of the trip, in seconds."""
        return self.ended - self.trained


class Site:
    """A federation's server and clients at work on a network, for at most `rounds` steps of the server.

    Several may share `up`, the link at work. `stepped` is called after every step.
    """

    def __init__(
        self, env: Environment, network: Network, population: Population, learner: Learner, up: Channel, rounds: float
    ) -> None:
        self.env, self.network, self.population, self.learner, self.up = env, network, population, learner, up
        self.down = None if network.down is None else network.down.open(env)
        self.presence, self.rounds, self.log = population.presence(), rounds, Log()
        self.stepped: Callable[[Site], None] = lambda site: None
        self.version = 0
        self.over: Event = env.event()
        self.why = ""
        self._numbers = [0] * population.size
        self._barren = 0
        self._patience = max(BARREN, population.size)

    @property
    def size(self) -> int:
        """The number of clients, N."""
        return self.population.size

    @property
    def running(self) -> bool:
        """Whether the server goes on."""
        return not self.over.triggered

    def newest(self) -> Start:
        """What a client is sent now."""
        return Start(self.learner.newest(), self.version)

    def model(self, trip: Trip) -> AnyModel | None:
        """The model that a trip has brought; None if it has brought none, or one that can't be used."""
        return self.learner.train(trip.client, trip.number, trip.start.w) if trip.arrived else None

    def step(self, w: AnyModel) -> None:
        """Make `w` the global model."""
        self.learner.move(w)
        self.version += 1
        self.stepped(self)
        if self.version >= self.rounds:
            self.end()

    def end(self, why: str = "") -> None:
        """Let the run end; `why` if it is before its rounds are done."""
        if self.running:
            self.why = why
            self.over.succeed()

    def here(self, client: int) -> bool:
        """Whether a client is within reach."""
        return self.presence.returns(client, self.env.now) <= self.env.now

    def wait(self, clients: Sequence[int]) -> Steps:
        """Wait until one of these clients is there; for ever, if none ever is."""
        now = self.env.now
        back = min((self.presence.returns(client, now) for client in clients), default=math.inf)
        if back > now:
            yield self.env.event() if math.isinf(back) else self.env.timeout(back - now)

    def trips(
        self,
        sent: Iterable[tuple[int, Start]],
        until: float = math.inf,
        download: bool = True,
        shares: Sequence[float] = (),
    ) -> Steps:
        """Trips of several clients at the same time; returns all of them when the last one is over.

        Client i is at work for `shares[i]` of the time of a training, or without `shares` for all of it.
        """
        trips = (self.trip(i, start, until, download, shares[i] if shares else 1.0) for i, start in sent)
        begun = [self.env.process(trip) for trip in trips]
        yield self.env.all_of(begun)
        return [process.value for process in begun]

    def trip(
        self, client: int, start: Start, until: float = math.inf, download: bool = True, share: float = 1.0
    ) -> Steps:
        """One trip of a client that is there, over by `until`; returns the `Trip`."""
        env, number = self.env, self._numbers[client]
        self._numbers[client] += 1
        leaves = self.presence.leaves(client, env.now)
        why, until = ("late", until) if until <= leaves else ("went away", leaves)
        trip = Trip(client, number, start, env.now)
        if not download or (yield from self._download(trip, until)):
            began = env.now
            there = yield from self._stay(share * self.population.training(client, number), until)
            self.log.interval(client, "train", began, env.now)
            if there:
                trip.trained = env.now
                yield from self._upload(trip, until)
        trip.ended = env.now
        if not trip.arrived:
            given_up = trip.failures > self.network.retries
            trip.why = f"lost: {trip.failures} failed uploads" if given_up else why
        self.log.trip(trip, self.version)
        self.log.carried.add(env.now, self.up.carried)
        self._barren = 0 if trip.arrived else self._barren + 1
        if self._barren >= self._patience:
            self.end(f"no upload has arrived in {self._barren} trips")
        return trip

    def count_downloads(self, clients: int) -> None:
        """Account for a model that so many clients are sent while they have nothing else to do."""
        self.log.bytes_down += clients * self.learner.bytes

    def _stay(self, seconds: float, until: float) -> Steps:
        """Let time pass; returns whether all of it passed before `until`."""
        now = self.env.now
        if now + seconds > until:
            yield self.env.timeout(until - now)
            return False
        if seconds:
            yield self.env.timeout(seconds)
        return True

    def _download(self, trip: Trip, until: float) -> Steps:
        began, size = self.env.now, self.learner.bytes
        if self.down is None:
            there = yield from self._stay(self.network.link.latency, until)
            self.log.bytes_down += size if there else 0
        else:
            there, sent = yield from self._send(self.down, size, until)
            self.log.bytes_down += sent
        self.log.interval(trip.client, "download", began, self.env.now)
        return there

    def _upload(self, trip: Trip, until: float) -> Steps:
        """Try until it has arrived, or the client has gone, or given up."""
        network, env, size = self.network, self.env, self.learner.bytes
        own = self.population.access(size)
        for attempt in range(1 + network.retries):
            if attempt:
                jitter = self.population.jitter(trip.client, trip.number, attempt)
                if not (yield from self._stay(network.backoff * 2 ** (attempt - 1) * jitter, until)):
                    break
            began = env.now
            given_up = until if network.timeout is None else min(until, began + network.timeout)
            trip.arrived = yield from self._attempt(size, own, given_up)
            self.log.interval(trip.client, "upload" if trip.arrived else "failed", began, env.now)
            if trip.arrived:
                alone = own + size / self.up.link.rate + self.up.link.latency
                trip.waited = max(round(env.now - trip.trained - alone, 9), 0.0)
                break
            if env.now >= until:
                break
            trip.failures += 1

    def _attempt(self, size: int, own: float, until: float) -> Steps:
        if not (yield from self._stay(own, until)):
            return False
        arrived, sent = yield from self._send(self.up, size, until)
        self.log.bytes_up += sent
        return arrived

    def _send(self, channel: Channel, size: int, until: float) -> Steps:
        """Send over a shared link; returns whether all has arrived by `until`, and the bytes that left."""
        transfer = channel.send(size)
        if transfer is None:
            return False, 0.0
        if until < math.inf:
            self.env.timeout(until - self.env.now).callbacks.append(lambda _: channel.cancel(transfer))
        arrived = yield transfer.done
        if arrived and channel.link.latency:
            arrived = yield from self._stay(channel.link.latency, until)
        return arrived, transfer.sent
