"""Simulated time: events, each at its moment, and the story of what happened."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf


class Killed(BaseException):
    """The process is dead, and nothing of it happens any more. `here` says whether it died in this operation."""

    def __init__(self, here: bool) -> None:
        super().__init__()
        self.here = here


class Hang(BaseException):
    """Simulated time has run out: somebody waits for what never comes."""


class World:
    """A clock that moves only when somebody waits, and the events that happen meanwhile.

    `limit` is the moment at which whoever waits should be done: there `Hang` is raised.
    """

    def __init__(self, limit: float = inf) -> None:
        self.now = 0.0
        self.limit = limit
        self.story: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen after so many seconds."""
        heappush(self._events, (self.now + seconds, next(self._numbers), act))

    def wait(self, seconds: float) -> None:
        """Let time go on by so many seconds, with all that happens in it."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            moment, _, act = heappop(self._events)
            self.now = max(self.now, moment)
            act()
        self.now = max(self.now, end)
        if self.now > self.limit:
            raise Hang(f"after {self.now:.0f} simulated seconds")

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now:10.4f}  {line}")
