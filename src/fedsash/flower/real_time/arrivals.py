"""What is heard of the nodes, in the order of its arrival, and what is still under way."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...client.messages import Missing, Reply, Request
from ...settings.errors import RunError, one_line
from ..nodes.on_grid import OnGrid
from ..nodes.roll_call import pulled

FILE = "timeline.json"
KEY = "arrivals"
"""The file of a run's folder that has the list, and its name there and in saved states."""

AWAY = "away"
BACK = "back"
"""What a client does between its trips."""

REFUSED = "refused"
"""Why an upload that arrived is not used: the guard refuses it."""


class Arrival(NamedTuple):
    """The end of a client's trip `number` from the model `version`, `time` seconds after the run's beginning.

    `why` is empty if an upload arrived that can be used, `"refused"` if the guard refused it, and otherwise says why
    none arrived. With the number -1 the client's node has left (`"away"`) or is there again (`"back"`).
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
    made = [Arrival(float(time), int(i), int(number), int(version), str(why)) for time, i, number, version, why in rows]
    if not all(isfinite(one.time) for one in made):
        raise ValueError("a time is not finite")
    return made


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
                yield Heard(client, -1, None, BACK if client in away else AWAY)

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
