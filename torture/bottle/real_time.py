"""Asynchronous schedulers over nodes in real time. What must hold: a replay of the record gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedsash.flower import RealTime
from fedsash.flower.real_time.arrivals import read
from fedsash.network import Asynchronous, FedWindow
from fedsash.runs import Driver, Result, run

from .reference import differences
from .rounds import Rounds
from .setup import SCHEDULERS
from .told import DEADLINE

LONGEST = 1.5 * DEADLINE
"""The seconds after which a client that may train at any time must have been heard of."""


class InRealTime(Rounds):
    """A run of an asynchronous scheduler."""

    def driver(self, grid: Any) -> Driver:
        scheduler = SCHEDULERS[self.setup.how]
        limit = None if isinstance(scheduler, FedWindow) else self.setup.asked
        return Asynchronous(self.over_nodes(grid, minimum=1), RealTime(limit), scheduler)

    def differences(self, result: Result) -> Iterator[str]:
        scheduler = SCHEDULERS[self.setup.how]
        limit = None if isinstance(scheduler, FedWindow) else self.setup.asked
        replay = Asynchronous(self.simulation, RealTime(limit, replay=self.out), scheduler)
        expected = run(replay, self.setup.rounds, progress=False).state
        for name in differences(result.state, expected):
            yield f"{name} is not that of a replay of the record"
        yield from self._without_end()
        without_limit = self.setup.asked == self.setup.clients and self.setup.how != "fedwindow"
        if (
            without_limit and not self.setup.scored_by_clients and not self.told.nodes_change
        ):  # an evaluation may wait longer
            yield from self._silent()

    def _without_end(self) -> Iterator[str]:
        """Trips that have no end in the record, though their client has ended a later one."""
        ended: dict[int, list[int]] = {}
        for arrival in read(self.out):
            if arrival.number >= 0:
                ended.setdefault(arrival.client, []).append(arrival.number)
        for client, numbers in ended.items():
            if sorted(numbers) != list(range(len(numbers))):
                yield f"of client {client} the trips {sorted(numbers)} have an end in the record"

    def _silent(self) -> Iterator[str]:
        """Clients of which nothing was heard for longer than a deadline, though all may train at any time."""
        record = read(self.out)
        last = dict.fromkeys(range(self.setup.clients), 0.0)
        for arrival in record:
            last[arrival.client] = arrival.time
        for client, moment in last.items():
            if record[-1].time - moment > LONGEST:
                yield f"nothing was heard of client {client} after {moment:.0f} of {record[-1].time:.0f} s"
