"""The server's link, which all clients share.

A link of `rate` R bytes per second serves its transfers in one of two ways. Both are exact at every event.

- `"fair"` (processor sharing): each of n transfers gets R/n. The link keeps a level V with dV/dt = R/n: the bytes that
  each transfer has been served so far. A transfer of b bytes that joins at level V ends at level V + b. So the transfer
  that ends next is the top of a heap, and an event costs O(log n) (the virtual time of fair queueing).
- `"first-come"`: one transfer at a time at the full rate R, in the order of arrival.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Literal

from simpy import Environment, Event

from ..settings.limits import Count, Positive, Strength, Unit
from ..settings.setting import Setting


@dataclass(frozen=True)
class Link(Setting):
    """A link that many transfers share."""

    rate: Annotated[Positive, Unit("bytes per second")]
    """how many bytes it carries in a second"""
    latency: Strength = 0.0
    """how many seconds after they were sent its bytes arrive"""
    sharing: Literal["fair", "first-come"] = "fair"
    """how transfers share it: "fair": each of n gets an n-th of the rate; "first-come": one after another at the full
    rate"""
    limit: Count | None = None
    """how many transfers at most are active or queued at a time; another one is refused at once; left out: any
    number"""

    def open(self, env: Environment) -> Channel:
        """The link in a simulation, without any transfer."""
        if self.sharing == "fair":
            return FairChannel(env, self)
        return FirstComeChannel(env, self)


class Transfer:
    """A transfer of `size` bytes. Its event `done` has the value True when the last byte was sent, False if cancelled.

    `end` is the level of a fair link at which the transfer ends. `sent` is the number of bytes sent, once it is done.
    """

    __slots__ = ("done", "end", "sent", "size")

    def __init__(self, size: float, end: float, done: Event) -> None:
        self.size = size
        self.end = end
        self.done = done
        self.sent = 0.0


class Channel(ABC):
    """A link in a simulation.

    Bytes are conserved: `carried == arrived + lost` whenever no transfer is `active`, that is served or waiting. `lost`
    are the bytes that were sent for transfers that were cancelled.
    """

    def __init__(self, env: Environment, link: Link) -> None:
        self.env = env
        self.link = link
        self.arrived = 0.0
        self.lost = 0.0
        self.active = 0
        self._busy = 0.0

    @property
    def carried(self) -> float:
        """The bytes sent so far: the rate times the time in which the link was busy."""
        self._advance()
        return self._busy * self.link.rate

    def send(self, size: float) -> Transfer | None:
        """Begin a transfer of `size` bytes; None if the link is full."""
        if self.link.limit is not None and self.active >= self.link.limit:
            return None
        self._advance()
        transfer = Transfer(size, 0.0, self.env.event())
        self.active += 1
        self._join(transfer)
        return transfer

    def cancel(self, transfer: Transfer) -> None:
        """Cancel a transfer, if it is not done. Its bytes sent so far are lost."""
        if transfer.done.triggered:
            return
        self._advance()
        if self._over(transfer):  # it ends at this very instant, and its event comes next
            return
        transfer.sent = min(max(self._served(transfer), 0.0), transfer.size)
        self.lost += transfer.sent
        self._end(transfer, False)
        self._leave(transfer)

    def _complete(self, transfer: Transfer) -> None:
        """End a transfer whose last byte was sent."""
        transfer.sent = transfer.size
        self.arrived += transfer.size
        self._end(transfer, True)

    def _end(self, transfer: Transfer, arrived: bool) -> None:
        """Note that a transfer is done, and whether it has arrived."""
        self.active -= 1
        transfer.done.succeed(arrived)

    @abstractmethod
    def _advance(self) -> None:
        """Account for the time since the last event."""

    @abstractmethod
    def _served(self, transfer: Transfer) -> float:
        """The bytes of a transfer that were sent so far."""

    @abstractmethod
    def _over(self, transfer: Transfer) -> bool:
        """Whether its rest is 0, or so small that adding its duration does not change the clock."""

    @abstractmethod
    def _join(self, transfer: Transfer) -> None:
        """Add a transfer."""

    @abstractmethod
    def _leave(self, transfer: Transfer) -> None:
        """Serve the others after a transfer has been cancelled."""


class FairChannel(Channel):
    """All transfers at the same time, each at an equal share of the rate."""

    def __init__(self, env: Environment, link: Link) -> None:
        super().__init__(env, link)
        self._heap: list[tuple[float, int, Transfer]] = []
        self._numbers = count()
        self._level = 0.0
        self._at = env.now
        self._due = math.inf

    def _served(self, transfer: Transfer) -> float:
        return transfer.size - (transfer.end - self._level)

    def _over(self, transfer: Transfer) -> bool:
        return self.env.now + (transfer.end - self._level) * self.active / self.link.rate <= self.env.now

    def _advance(self) -> None:
        now = self.env.now
        if self.active and now > self._at:
            self._level += (now - self._at) * self.link.rate / self.active
            self._busy += now - self._at
        self._at = now

    def _join(self, transfer: Transfer) -> None:
        transfer.end = self._level + transfer.size
        heapq.heappush(self._heap, (transfer.end, next(self._numbers), transfer))
        self._plan()

    def _leave(self, transfer: Transfer) -> None:
        self._plan()

    def _plan(self) -> None:
        """Wake up when the next transfer ends. A wake-up is never cancelled; one that comes too early plans another."""
        heap = self._heap
        while heap and heap[0][2].done.triggered:
            heapq.heappop(heap)
        if not heap:
            self._level = 0.0
            return
        wait = max(heap[0][0] - self._level, 0.0) * self.active / self.link.rate
        if self.env.now + wait < self._due:
            self._due = self.env.now + wait
            self.env.timeout(wait).callbacks.append(self._wake)

    def _wake(self, event: Event) -> None:
        """Complete the transfers that end now. A wake-up that is not the one that is due does nothing."""
        now = self.env.now
        if now != self._due:
            return
        self._advance()
        self._due = math.inf
        heap = self._heap
        while heap and self._over(heap[0][2]):
            transfer = heapq.heappop(heap)[2]
            if not transfer.done.triggered:
                self._complete(transfer)
        self._plan()


class FirstComeChannel(Channel):
    """One transfer at a time, at the full rate; the others queue."""

    def __init__(self, env: Environment, link: Link) -> None:
        super().__init__(env, link)
        self._queue: deque[Transfer] = deque()
        self._since = env.now
        self._at = env.now

    def _served(self, transfer: Transfer) -> float:
        if self._queue[0] is not transfer:
            return 0.0
        return (self.env.now - self._since) * self.link.rate

    def _over(self, transfer: Transfer) -> bool:
        return self.env.now + (transfer.size - self._served(transfer)) / self.link.rate <= self.env.now

    def _advance(self) -> None:
        if self.active:
            self._busy += self.env.now - self._at
        self._at = self.env.now

    def _join(self, transfer: Transfer) -> None:
        self._queue.append(transfer)
        if len(self._queue) == 1:
            self._begin()

    def _leave(self, transfer: Transfer) -> None:
        if self._queue[0] is transfer:
            self._begin()

    def _begin(self) -> None:
        """Serve the first in the queue that has not been cancelled."""
        while self._queue and self._queue[0].done.triggered:
            self._queue.popleft()
        if self._queue:
            transfer = self._queue[0]
            self._since = self.env.now
            last_byte = self.env.timeout(transfer.size / self.link.rate)
            last_byte.callbacks.append(lambda _: self._finish(transfer))

    def _finish(self, transfer: Transfer) -> None:
        """End the transfer that was served, unless it was cancelled, and serve the next one."""
        if not transfer.done.triggered:
            self._advance()
            self._complete(transfer)
            self._begin()
