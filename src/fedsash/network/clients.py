"""Simulated clients: how fast they compute, the rate of their own link, and when they are present."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from ..methods.sampling import check_clients, trace_of
from ..settings.errors import MOST, check
from ..settings.limits import CountFromZero, Positive, Share, Strength, Unit
from ..settings.setting import Setting
from ..vector.randomness import Purpose, fractions, generator, key, keys


class Draw(enum.IntEnum):
    """The purpose of a random draw in the network."""

    SPEED = 1
    STRAGGLER = 2
    WORK = 3
    PRESENCE = 4
    BACKOFF = 5


@dataclass(frozen=True)
class SimulatedClients(Setting):
    """How fast clients train, and when they are present.

    Client i trains for this many seconds:

        T_i = seconds * S_i / mean(S) * slowness_i * X

    S_i is the number of samples that it passes over, by the amount of training before any schedule. slowness_i is
    log-normal with median 1; that of stragglers is `slower` times as large. X is 1 without `noise`. A client that goes
    away loses its current trip.
    """

    count: CountFromZero = 0
    """how many clients there are where there are no data (`learning = false`); otherwise the data determine it"""
    seconds: Strength = 1.0
    """how long a client of median speed trains on average, in simulated seconds"""
    spread: Strength = 0.0
    """the standard deviation of the logarithm of slowness; with 0 all clients but stragglers are equally fast"""
    stragglers: Share = 0.0
    """the share of stragglers among the clients"""
    slower: Annotated[float, Interval(ge=1, le=MOST)] = 10.0
    """how many times as long stragglers train"""
    noise: Literal["none", "exponential"] = "none"
    """whether a client's trainings differ in duration: "none": they do not; "exponential": each is multiplied by a new
    draw with mean 1"""
    rate: Annotated[Positive, Unit("bytes per second")] | None = None
    """the rate of each client's own link in bytes per second, which an upload passes before the server's link; left
    out: no limit"""
    on: Strength = 0.0
    """how many seconds a client is present on average before it goes away (a Markov process); 0: always"""
    off: Strength = 0.0
    """how many seconds a client is then away on average; 0: never"""
    trace: str = field(default="", metadata={"file": True})
    """a file (.npy or .csv) that says when clients are present, in place of `on` and `off`: a table of 0 and 1 with one
    row for every `step` seconds and one column for each client, which is repeated at its end"""
    step: Annotated[Positive, Unit("seconds")] = 1.0
    """how many seconds a row of `trace` stands for"""

    def __post_init__(self) -> None:
        both_or_none = (self.on > 0) == (self.off > 0)
        check(both_or_none, "SimulatedClients.on, off", (self.on, self.off), "must both be positive, or 0")
        if self.on > 0:
            check(not self.trace, "SimulatedClients.trace", self.trace, "can't go with on and off")


class Population:
    """Clients with their drawn speeds. `samples` `[N]` are the numbers of samples that they pass over in a training."""

    def __init__(self, clients: SimulatedClients, samples: NDArray[np.int64], seed: int) -> None:
        self.clients = clients
        self._seed = seed
        self.size = len(samples)
        normal = generator(seed, Purpose.NETWORK, Draw.SPEED).standard_normal(self.size)
        straggler = _uniforms(seed, Draw.STRAGGLER, self.size) < clients.stragglers
        slower = straggler * (clients.slower - 1) + 1
        seconds = clients.seconds * samples / samples.mean() * np.exp(clients.spread * normal) * slower
        self._seconds: list[float] = seconds.tolist()

    @property
    def mean_seconds(self) -> float:
        """The mean of T_i over the clients."""
        return sum(self._seconds) / self.size

    def training(self, client: int, number: int) -> float:
        """The duration of a client's training `number`, in seconds."""
        seconds = self._seconds[client]
        if self.clients.noise == "none":
            return seconds
        return -seconds * math.log1p(-_uniform(self._seed, Draw.WORK, client, number))

    def access(self, size: float) -> float:
        """The time that `size` bytes take on a client's own link, in seconds."""
        if self.clients.rate is None:
            return 0.0
        return size / self.clients.rate

    def jitter(self, client: int, trip: int, attempt: int) -> float:
        """A random factor in [0.5, 1.5) for a back-off, so that clients do not all try again at the same time."""
        return 0.5 + _uniform(self._seed, Draw.BACKOFF, client, trip, attempt)

    def presence(self) -> Presence:
        """When each client is present, from time 0 on."""
        if self.clients.trace:
            return TracePresence(self.clients, self.size)
        if self.clients.on > 0:
            return OnOffPresence(self.clients, self.size, self._seed)
        return Presence()


class Presence:
    """When clients are present; here all of them, always. Times must be asked for in ascending order."""

    def leaves(self, client: int, now: float) -> float:
        """The time when a client that is present goes away; `now` if it is away."""
        return math.inf

    def returns(self, client: int, now: float) -> float:
        """The time when a client is present again; `now` if it is present."""
        return now


class OnOffPresence(Presence):
    """An on/off Markov process for each client, stationary from the start."""

    def __init__(self, clients: SimulatedClients, size: int, seed: int) -> None:
        self._on = clients.on
        self._off = clients.off
        self._seed = seed
        present = _uniforms(seed, Draw.PRESENCE, size) < clients.on / (clients.on + clients.off)
        # Each client is present or away until a time, in an interval of its process with a number, from 1 on.
        self._present: list[bool] = present.tolist()
        self._until = [0.0] * size
        self._number = [0] * size

    def leaves(self, client: int, now: float) -> float:
        self._forward(client, now)
        if not self._present[client]:
            return now
        return self._until[client]

    def returns(self, client: int, now: float) -> float:
        self._forward(client, now)
        if self._present[client]:
            return now
        return self._until[client]

    def _forward(self, client: int, now: float) -> None:
        """Go on to the interval of a client's process in which the time `now` lies."""
        while self._until[client] <= now:
            self._number[client] += 1
            number = self._number[client]
            if number > 1:
                self._present[client] = not self._present[client]
            mean = self._on if self._present[client] else self._off
            self._until[client] -= mean * math.log1p(-_uniform(self._seed, Draw.PRESENCE, client, number))


class TracePresence(Presence):
    """Presence from a table `[R, N]` of 0 and 1: R steps of time, N clients."""

    def __init__(self, clients: SimulatedClients, size: int) -> None:
        self._step = clients.step
        self._table = trace_of("SimulatedClients", clients.trace, "step")
        check_clients("SimulatedClients", self._table, size)

    def leaves(self, client: int, now: float) -> float:
        return self._next(client, now, present=False)

    def returns(self, client: int, now: float) -> float:
        return self._next(client, now, present=True)

    def _next(self, client: int, now: float, present: bool) -> float:
        """The first time from `now` on when the client is `present`, or away."""
        column = self._table[:, client]
        first = int(now / self._step + 1e-9)  # a time that is a whole number of steps may have been rounded down
        for row in range(first, first + len(column)):
            if column[row % len(column)] == present:
                return max(now, row * self._step)
        return math.inf


def _uniform(seed: int, draw: Draw, *numbers: int) -> float:
    """A number in [0, 1), a pure function of its arguments."""
    return (key(seed, Purpose.NETWORK, draw, *numbers) >> 11) * 2.0**-53


def _uniforms(seed: int, draw: Draw, size: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each client, `[size]`."""
    return fractions(keys(seed, Purpose.NETWORK, draw, np.arange(size)))
