"""The answers of nodes in the order of their arrival, and the requests that are in flight."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...client.messages import Missing, Reply, Request
from ...settings.errors import RunError, one_line
from ...system.host import host
from ..nodes.on_grid import OnGrid
from ..nodes.roll_call import pulled

FILE = "timeline.json"
"""The file of a run's folder that has the list of arrivals."""
KEY = "arrivals"
"""The name of the list, in this file and in saved states."""

AWAY = "away"
BACK = "back"
"""The reasons of arrivals without a trip: a client's node has left or the client rests, or it can be asked again."""

REFUSED = "refused"
"""Why an upload that arrived is not used: the guard refuses it."""


class Arrival(NamedTuple):
    """The end of a client's trip `number` from the model `version`, `time` seconds after the run's beginning.

    `why` is empty if an upload arrived that can be used, `"refused"` if the guard refused it, and otherwise says why
    none arrived. With the number -1 the client can't be asked from now on (`"away"`), or can be again (`"back"`).
    """

    time: float
    client: int
    number: int
    version: int
    why: str

    @property
    def came(self) -> bool:
        """Whether an upload arrived."""
        return self.why in ("", REFUSED)


def packed(arrivals: Iterable[Arrival]) -> Tensor:
    """A list of arrivals as bytes, for a saved state."""
    return torch.from_numpy(np.frombuffer(json.dumps(list(arrivals)).encode(), dtype=np.uint8).copy())


def unpacked(content: Tensor) -> list[Arrival]:
    """The list that `packed` made into these bytes."""
    return _arrivals(json.loads(content.cpu().numpy().tobytes()))


def read(folder: Path) -> list[Arrival]:
    """The list of the run in a folder. Raises `RunError` if there is none."""
    file = folder / FILE
    try:
        return _arrivals(json.loads(file.read_text())[KEY])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} has no list of arrivals: {one_line(error)}") from error


def _arrivals(rows: list[Any]) -> list[Arrival]:
    arrivals = []
    for seconds, client, number, version, why in rows:
        arrivals.append(Arrival(float(seconds), int(client), int(number), int(version), str(why)))
    if not all(isfinite(arrival.time) for arrival in arrivals):
        raise ValueError("a time is not finite")
    return arrivals


class News(NamedTuple):
    """News of a client: the answer to its training `number`; or with -1, that it is away or back."""

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
    """The requests that are on their way over an executor's grid, each to one client.

    A client that fails again and again rests before it is asked once more, for twice as long after each failure, at
    most as long as an unknown node is not asked: otherwise it is sent a model at each look.
    """

    def __init__(self, executor: OnGrid) -> None:
        self._executor = executor
        self._pending: dict[str, Pending] = {}
        self._unsent: list[News] = []
        self._rest: dict[int, float] = {}
        self._rests_until: dict[int, float] = {}

    def send(self, client: int, request: Request) -> None:
        """Send a request to train to the node of a client."""
        for message, _ in self._executor.push(request):
            if isinstance(message, Missing):
                self._unsent.append(News(client, request.round, None, message.why))
            else:
                node = self._executor.roll_call.roster.nodes[client]
                until = host.clock.now() + self._executor.waiting.deadline
                self._pending[message] = Pending(client, request, node, until)

    def wait(self, away: set[int]) -> list[News]:
        """Wait until there is news, and return it; `away` are the clients that could not be asked before.

        There is none if no request is in flight any more, and no node comes within the time of a roll call.
        """
        waiting = self._executor.waiting
        began = host.clock.now()
        while True:
            host.clock.sleep(waiting.poll)
            now = host.clock.now()  # before answers are pulled: one that has arrived by its deadline is in time
            live = self._executor.roll_call.look()
            ends = [*self._answers(), *self._lost(live, now)]
            news = [*self._presence(live, away), *ends]  # a client that rests is away before it could be asked again
            if news or (not self._pending and now > began + waiting.roll_call):
                return news

    def _presence(self, live: set[int], away: set[int]) -> Iterator[News]:
        """The clients that can't be asked from now on, and those that can be again."""
        now = host.clock.now()
        for client, node in sorted(self._executor.roll_call.roster.nodes.items()):
            present = node in live and now >= self._rests_until.get(client, now)
            if present and client in away:
                yield News(client, -1, None, BACK)
            elif not present and client not in away:
                yield News(client, -1, None, AWAY)

    def _answers(self) -> Iterator[News]:
        """The answers that have arrived, after the requests that could not be sent."""
        yield from self._unsent
        self._unsent = []
        for message, pending in pulled(self._executor.grid, self._pending):
            request = pending.request
            place = request.ids * 0  # the request is to one client: its place is 0
            (answer,) = self._executor.read(request, place, message)
            if isinstance(answer, Missing):
                self._note_failure(pending.client)
                yield News(pending.client, request.round, None, answer.why)
            else:
                self._rest.pop(pending.client, None)
                yield News(pending.client, request.round, answer, "")

    def _note_failure(self, client: int) -> None:
        """Let a client rest after a failure, but not after the first one in a row."""
        waiting = self._executor.waiting
        rest = self._rest.get(client, 0.0)
        self._rests_until[client] = host.clock.now() + rest
        self._rest[client] = min(max(2 * rest, waiting.poll), waiting.ask_again)

    def _lost(self, live: set[int], now: float) -> Iterator[News]:
        """The requests that are not waited for any more: the node has left, or the answer is late."""
        for message_id, pending in list(self._pending.items()):
            if pending.node not in live:
                why = "lost: its node has left"
            elif now >= pending.until:
                why = f"late: no answer within {self._executor.waiting.deadline:g} s"
            else:
                continue
            del self._pending[message_id]
            yield News(pending.client, pending.request.round, None, why)
