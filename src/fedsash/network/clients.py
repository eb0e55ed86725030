"""The clients: how fast they compute, how they are linked, and when they are there."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..basics.errors import SettingError, check, check_strength, one_line
from ..basics.randomness import Purpose, generator, key, keys
from ..basics.typed import typed


class Draw(enum.IntEnum):
    """What a draw of the network is for."""

    SPEED = 1
    STRAGGLER = 2
    WORK = 3
    PRESENCE = 4
    BACKOFF = 5


@dataclass(frozen=True)
@typed
class SimulatedClients:
    """How clients train and how they come and go.

    Client i trains for

        T_i = seconds * S_i / mean(S) * slowness_i * X

    where S_i is the number of samples that it passes over, slowness_i is log-normal with median 1 and deviation
    `spread` of its logarithm, `slower` times as much for a share `stragglers` of the clients, and X is 1, or with
    `noise = "exponential"` drawn afresh for every training, with mean 1. A client's own link of `rate` bytes a second
    (None: no limit) comes before the server's: an upload passes it first.

    Clients come and go as a Markov process that is there for `on` seconds on average and away for `off` (0: always
    there); or as a `trace` (.npy or .csv) of 0 and 1, a row for every `step` seconds and a column a client, which
    starts again at its end. One that goes away loses what it was at. `count` is the number of clients in a study of
    timing alone; otherwise the data say it.
    """

    count: int = 0
    seconds: float = 1.0
    spread: float = 0.0
    stragglers: float = 0.0
    slower: float = 10.0
    noise: Literal["none", "exponential"] = "none"
    rate: float | None = None
    on: float = 0.0
    off: float = 0.0
    trace: str = ""
    step: float = 1.0

    def __post_init__(self) -> None:
        check(self.count >= 0, "SimulatedClients.count", self.count, "must not be negative")
        for name in ("seconds", "spread", "on", "off"):
            check_strength(f"SimulatedClients.{name}", getattr(self, name))
        check(0 <= self.stragglers <= 1, "SimulatedClients.stragglers", self.stragglers, "must be between 0 and 1")
        check(self.slower >= 1, "SimulatedClients.slower", self.slower, "must be at least 1")
        check(
            self.rate is None or self.rate > 0, "SimulatedClients.rate", self.rate, "must be positive, bytes a second"
        )
        check(
            (self.on > 0) == (self.off > 0),
            "SimulatedClients.on, off",
            (self.on, self.off),
            "must both be positive, or 0",
        )
        check(not (self.trace and self.on), "SimulatedClients.trace", self.trace, "can't go with on and off")
        check(self.step > 0, "SimulatedClients.step", self.step, "must be positive, seconds")


class Population:
    """Clients with the speeds that were drawn for them; `samples` `[N]` are what each passes over in a training."""

    def __init__(self, clients: SimulatedClients, samples: NDArray[np.int64], seed: int) -> None:
        n = len(samples)
        self.clients, self._seed, self.size = clients, seed, n
        normal = generator(seed, Purpose.NETWORK, Draw.SPEED).standard_normal(n)
        slow = (_uniforms(seed, Draw.STRAGGLER, n) < clients.stragglers) * (clients.slower - 1) + 1
        seconds = clients.seconds * samples / samples.mean() * np.exp(clients.spread * normal) * slow
        self._seconds: list[float] = seconds.tolist()

    @property
    def mean_seconds(self) -> float:
        """The mean of T_i over the clients."""
        return sum(self._seconds) / self.size

    def training(self, client: int, number: int) -> float:
        """The seconds that a client's training `number` takes."""
        seconds = self._seconds[client]
        if self.clients.noise == "none":
            return seconds
        return -seconds * math.log1p(-uniform(self._seed, Draw.WORK, client, number))

    def access(self, size: float) -> float:
        """The seconds that `size` bytes take on a client's own link."""
        return 0.0 if self.clients.rate is None else size / self.clients.rate

    def jitter(self, client: int, trip: int, attempt: int) -> float:
        """A number in [0.5, 1.5) by which a back-off is stretched, so that clients don't come back all at once."""
        return 0.5 + uniform(self._seed, Draw.BACKOFF, client, trip, attempt)

    def presence(self) -> Presence:
        """Who is there when, from time 0 on."""
        if self.clients.trace:
            return TracePresence(self.clients, self.size)
        return OnOffPresence(self.clients, self.size, self._seed) if self.clients.on else Presence()


class Presence:
    """Who is there when; as it stands, everybody always. Times are asked for in ascending order."""

    def leaves(self, client: int, now: float) -> float:
        """When a client that is there goes away."""
        return math.inf

    def returns(self, client: int, now: float) -> float:
        """When a client is there again: `now` if it is."""
        return now


class OnOffPresence(Presence):
    """An on/off Markov process for each client, stationary from the start."""

    def __init__(self, clients: SimulatedClients, size: int, seed: int) -> None:
        self._on, self._off, self._seed = clients.on, clients.off, seed
        there = _uniforms(seed, Draw.PRESENCE, size) < clients.on / (clients.on + clients.off)
        self._there: list[bool] = there.tolist()
        self._until = [0.0] * size
        self._number = [0] * size

    def leaves(self, client: int, now: float) -> float:
        self._forward(client, now)
        return self._until[client] if self._there[client] else now

    def returns(self, client: int, now: float) -> float:
        self._forward(client, now)
        return now if self._there[client] else self._until[client]

    def _forward(self, client: int, now: float) -> None:
        while self._until[client] <= now:
            number = self._number[client] = self._number[client] + 1
            if number > 1:
                self._there[client] = not self._there[client]
            mean = self._on if self._there[client] else self._off
            self._until[client] -= mean * math.log1p(-uniform(self._seed, Draw.PRESENCE, client, number))


class TracePresence(Presence):
    """A table [R, N] of who is there in which of R steps."""

    def __init__(self, clients: SimulatedClients, size: int) -> None:
        self._path, self._step, self._size = clients.trace, clients.step, size
        _ = self._table

    def leaves(self, client: int, now: float) -> float:
        return self._next(client, now, there=False)

    def returns(self, client: int, now: float) -> float:
        return self._next(client, now, there=True)

    def _next(self, client: int, now: float, there: bool) -> float:
        """The first time from `now` on at which the client is there, or is not."""
        column = self._table[:, client]
        first = int(now / self._step + 1e-9)  # a time that is a whole number of steps may have been rounded down
        for row in range(first, first + len(column)):
            if column[row % len(column)] == there:
                return max(now, row * self._step)
        return math.inf

    @cached_property
    def _table(self) -> NDArray[np.bool_]:
        field, path = "SimulatedClients.trace", self._path
        check(Path(path).suffix in (".npy", ".csv"), field, path, "must be a .npy or .csv file")
        try:
            table = np.load(path) if path.endswith(".npy") else np.loadtxt(path, delimiter=",", ndmin=2)
        except (OSError, ValueError) as error:
            raise SettingError("Clients", "trace", path, f"can't be read: {one_line(error)}") from error
        valid = table.ndim == 2 and table.shape[1] == self._size and bool(np.isin(table, (0, 1)).all())
        check(valid, field, path, f"must hold 0 and 1 only, a row a step and a column for each of {self._size} clients")
        return table.astype(np.bool_)


def uniform(seed: int, draw: Draw, *numbers: int) -> float:
    """A number in [0, 1), a pure function of its arguments."""
    return (key(seed, Purpose.NETWORK, draw, *numbers) >> 11) * 2.0**-53


def _uniforms(seed: int, draw: Draw, size: int) -> NDArray[np.float64]:
    h = keys(seed, Purpose.NETWORK, draw, np.arange(size))
    return (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
