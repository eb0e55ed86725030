"""Schedulers in real time: the trips of clients are messages to their nodes, and time goes on by what is heard of them.

Real time is no function of a seed. So whatever happens is in a list, and the list alone moves the scheduler: when a run
is resumed, and when it is replayed elsewhere, the same list makes the same steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from simpy import Environment, Event

from ...client.messages import Missing
from ...engines import Training
from ...engines.clients import Clients
from ...network.fedwindow import FedWindow
from ...network.learning import AnyModel, Learning, Start
from ...network.schedulers import Scheduler
from ...network.site import Site, Steps
from ...network.trip import Trip
from ...settings.errors import RunError, check
from ...settings.fingerprint import text
from ...settings.limits import Count
from ...settings.setting import Setting
from ...system.host import host
from ...vector.arrays import Ints, Vectors
from ..nodes.on_grid import FlowerClients, OnGrid
from .arrivals import AWAY, KEY, REFUSED, Arrival, InFlight, packed, read, unpacked

STOPPED = "lost: the server was stopped"
"""Why a trip has no upload that was in flight when the server's process ended."""


@dataclass(frozen=True)
class RealTime(Setting):
    """The time of the nodes of a Flower federation, for a scheduler that moves the server.

        driver = Asynchronous(federation, RealTime(limit=8), FedBuff(4))        its clients are FlowerClients
        run(driver, 100, out="runs/f")
        again = Asynchronous(simulation, RealTime(limit=8, replay="runs/f"), FedBuff(4))

    The deadlines are those of the clients' `Waiting`. What happens is recorded. A replay of a run's federation gives
    the same bytes; it ends with the record.

    Raises `SettingError` for a limit with FedWindow, and for clients that are not on nodes unless they replay.
    """

    limit: Count | None = None
    """how many clients train at a time at most; left out: all that are there"""
    replay: Path | str | None = field(default=None, metadata={"numbers": False})
    """the folder of a run whose record is followed, with clients anywhere; left out: the clients' nodes train"""

    @property
    def bytes(self) -> int | None:
        return None

    @property
    def gradients(self) -> bool:
        return False

    def fits(self, clients: Clients, scheduler: Scheduler) -> None:
        on_nodes = isinstance(clients, FlowerClients)
        if isinstance(scheduler, FedWindow):
            requirement = "FedWindow's window says how many clients train at a time: leave it out"
            check(self.limit is None, "RealTime.limit", self.limit, requirement)
        if isinstance(clients, FlowerClients):
            minimum = clients.waiting.minimum
            check(minimum == 1, "Waiting.minimum", minimum, "is for synchronous rounds: leave it out")
        if self.replay is None:
            requirement = "the clients must be FlowerClients, or RealTime replays a run"
            check(on_nodes, "clients", type(clients).__name__, requirement)

    def past(self, scheduler: Scheduler, training: Training, sizes: Ints) -> dict[str, str]:
        """What a run's past depends on beside its record, as `Network.past` gives it."""
        return {"past.network": text(self), "past.scheduler": text(scheduler)}

    def begin(self, learning: Learning, saved: Vectors) -> RealSite:
        """A federation's site at time 0, with what happened before its state was saved, or in the run to replay.

        Raises `RunError` if the state is of another record than the one to replay.
        """
        happened = unpacked(saved[KEY]) if KEY in saved else []
        if self.replay is None:
            return RealSite(learning, self.limit, happened, live=True)
        record = read(Path(self.replay))
        if record[: len(happened)] != happened:
            raise RunError(f"the saved state is not of a replay of {self.replay}")
        return RealSite(learning, self.limit, record, live=False)


class RealSite(Site):
    """A site whose clients are on nodes.

    It follows the `record` of what happened. If it is `live`, its clients go on from there: what was in flight at the
    record's end is lost. Otherwise the run ends there.
    """

    learner: Learning

    def __init__(self, learning: Learning, limit: int | None, record: Sequence[Arrival], live: bool) -> None:
        federation = learning.federation
        super().__init__(Environment(), learning, len(federation.sizes), inf, federation.seed)
        self.happened: list[Arrival] = []
        self._until_step = 0
        self._limit = inf if limit is None else limit
        self._ahead = deque(record)
        self._live = live
        self._nodes: InFlight | None = None
        self._began = 0.0
        self._flying: dict[tuple[int, int], tuple[Trip, Event]] = {}
        self._away: set[int] = set()
        self._changed = self.env.event()

    def advance(self, done: Callable[[], bool]) -> None:
        """Let what is recorded, or comes from the nodes, happen, one arrival after another."""
        if self._live and self._nodes is None and not self._ahead:
            self._go_on()
        while self.running and not done():
            if self.env.peek() <= self.env.now:
                self.env.step()
            elif self._ahead:
                self._happen(self._ahead.popleft())
            elif self._nodes is None:
                self.end("the record that is replayed is over")
            else:
                self._wait_for_news(self._nodes)

    def step(self, w: AnyModel) -> None:
        self._until_step = len(self.happened)
        super().step(w)

    def here(self, client: int) -> bool:
        return client not in self._away

    def gone(self, clients: Sequence[int]) -> bool:
        return not clients  # a node may always come back

    def wait(self, clients: Sequence[int], until: float = inf) -> Steps:
        """Rounds and their deadlines are the federation's own affair: `until` means nothing."""
        while len(self._flying) >= self._limit or not any(map(self.here, clients)):
            yield self._changed

    def trip(self, client: int, start: Start, until: float = inf, download: bool = True, share: float = 1.0) -> Steps:
        """One trip. Rounds and their deadlines are the federation's own affair: `until` and `share` mean nothing."""
        trip = self._begin(client, start)
        over = self.env.event()
        self._flying[client, trip.number] = trip, over
        if self._nodes is not None:
            self._nodes.send(client, self.learner.ask(client, trip.number, start))
        if self._live:
            # A loan, which is not saved for this trip: in flight when the process ends, it is lost, and needs no model.
            start = start._replace(w=self.learner.numbering.loan(start.w))
            trip.start = start
        if download:
            self.log.bytes_down += self.learner.messages.down
        end: Arrival = yield over
        trip.arrived = end.came
        trip.trained = trip.began  # the server can't know when the training ended
        if trip.arrived:
            self.log.bytes_up += self.learner.messages.up
        else:
            trip.why = end.why
            trip.failures = 1
        self.log.interval(client, "train" if trip.arrived else "failed", trip.began, self.env.now)
        self._end(trip)
        return trip

    def deliver(self, client: int) -> Steps:
        """A node is sent its model with its next trip: here the bytes are counted."""
        self.log.bytes_down += self.learner.messages.down
        yield self.env.timeout(0)

    def capacity(self) -> None:
        return None

    def measures(self) -> dict[str, Any]:
        return self.log.measures(self.env.now, None)

    def timeline(self) -> dict[str, Any]:
        """What each client did and when, and the record of what happened under `arrivals`."""
        return self.log.timeline(self.env.now, None) | {KEY: self.happened}

    def saved(self) -> Vectors:
        return {KEY: packed(self.happened[: self._until_step])}

    def _go_on(self) -> None:
        """Let clients train on their nodes from now on."""
        executor = self.learner.federation.executor
        assert isinstance(executor, OnGrid)
        self._nodes = InFlight(executor)
        self._began = host.clock.now() - self.env.now
        for trip, _ in self._flying.values():
            self._ahead.append(Arrival(self.env.now, trip.client, trip.number, trip.start.version, STOPPED))

    def _wait_for_news(self, nodes: InFlight) -> None:
        """Wait until there is news of the clients, and record it as arrivals that are ahead."""
        news = nodes.wait(self._away)
        now = round(host.clock.now() - self._began, 6)
        for client, number, answer, why in news:
            version = self.version
            if number >= 0:
                trip, _ = self._flying[client, number]
                version = trip.start.version
            if answer is not None:
                self.learner.answers[client, number] = answer
                if not self.learner.federation.aggregation.accepts(answer.norms):
                    why = REFUSED
            self._ahead.append(Arrival(now, client, number, version, why))
        if not news:
            self.end("no node is there any more")

    def _happen(self, arrival: Arrival) -> None:
        """Let a recorded arrival happen, at its time. Raises `RunError` if no trip here ends with it."""
        self.happened.append(arrival)
        if arrival.time > self.env.now:
            self.env.run(until=arrival.time)
        if arrival.number < 0:
            self._note_presence(arrival.client, arrival.why == AWAY)
        else:
            key = arrival.client, arrival.number
            trip, over = self._flying.pop(key, (None, None))
            if trip is None or over is None or trip.start.version != arrival.version:
                raise RunError(f"the record of arrivals is of another run: client {arrival.client} made no such trip")
            self._note_answer(key, arrival.why == REFUSED)
            over.succeed(arrival)
        self._changed.succeed()
        self._changed = self.env.event()

    def _note_presence(self, client: int, away: bool) -> None:
        if away:
            self._away.add(client)
        else:
            self._away.discard(client)

    def _note_answer(self, training: tuple[int, int], refused: bool) -> None:
        """Note whether the guard refused an upload: a replay must not ask again."""
        if not refused:
            self.learner.refused.discard(training)
            return
        self.learner.refused.add(training)
        if not self.learner.replaying:
            self.learner.answers.setdefault(training, Missing(np.zeros(1, dtype=np.int64), REFUSED))
