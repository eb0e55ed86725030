"""Trainings in flight: requests to single clients on their nodes, and what comes of them, as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ...client.messages import Missing, Reply, Request
from ..nodes.on_grid import OnGrid
from ..nodes.roll_call import pulled
from . import arrivals


class Heard(NamedTuple):
    """What was heard of a client: the answer to its training `number`; or with -1, that it is away or back."""

    client: int
    number: int
    answer: Reply | None
    why: str


class Pending(NamedTuple):
    """A request that was sent to a node, and the time until which its answer is waited for."""

    client: int
    request: Request
    node: int
    until: float


class InFlight:
    """The requests that are on their way over an executor's grid, each to one client."""

    def __init__(self, executor: OnGrid) -> None:
        self._executor = executor
        self._pending: dict[str, Pending] = {}
        self._unsent: list[Heard] = []

    def send(self, client: int, request: Request) -> None:
        """Send a request to train to the node of a client."""
        for message, _ in self._executor.push(request):
            if isinstance(message, Missing):
                self._unsent.append(Heard(client, request.round, None, message.why))
            else:
                node = self._executor.roll_call.roster.nodes[client]
                until = time.monotonic() + self._executor.waiting.deadline
                self._pending[message] = Pending(client, request, node, until)

    def listen(self, away: set[int]) -> list[Heard]:
        """Wait until something is heard; `away` are the clients whose nodes were not there before.

        Nothing is heard if nobody is asked any more, and nobody comes within the time of a roll call.
        """
        waiting = self._executor.waiting
        began = time.monotonic()
        while True:
            time.sleep(waiting.poll)  # so that a node that fails at once is not asked without end
            now = time.monotonic()  # what lies there at a deadline is in time
            live = self._executor.roll_call.look()
            heard = [*self._presence(live, away), *self._answers(live, now)]
            if heard or (not self._pending and now > began + waiting.roll_call):
                return heard

    def _presence(self, live: set[int], away: set[int]) -> Iterator[Heard]:
        for client, node in sorted(self._executor.roll_call.roster.nodes.items()):
            if (node in live) == (client in away):
                yield Heard(client, -1, None, arrivals.BACK if client in away else arrivals.AWAY)

    def _answers(self, live: set[int], now: float) -> Iterator[Heard]:
        yield from self._unsent
        self._unsent = []
        for message, one in pulled(self._executor.grid, self._pending):
            (answer,) = self._executor.read(one.request, one.request.ids * 0, message)
            if isinstance(answer, Missing):
                yield Heard(one.client, one.request.round, None, answer.why)
            else:
                yield Heard(one.client, one.request.round, answer, "")
        for message, one in list(self._pending.items()):
            if one.node not in live or now >= one.until:
                del self._pending[message]
                late = f"late: no answer within {self._executor.waiting.deadline:g} s"
                why = late if one.node in live else "lost: its node has left"
                yield Heard(one.client, one.request.round, None, why)
