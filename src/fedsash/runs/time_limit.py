"""A time by which a command has stopped: it stops early enough for the round that it is in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

TIME_UP = 14
"""What stands for the time's end where the number of a signal does: that of SIGALRM, which Windows has not."""
CAREFUL = 1.5
"""A next round may take so many times as long as the longest so far; what is left of it saves the state."""
RESERVE = 0.2
"""The share of the time that is kept for the end: saving, pictures, the end of processes."""
MOST_RESERVED = 10.0
"""At most so many seconds are kept for the end."""


@dataclass
class TimeLimit:
    """So many `seconds`, from now on.

    `tick` is called after every round, or after every piece of other work; `over` says whether another one would end
    too late: whether 1.5 times the longest so far is more than the time that is left.
    """

    seconds: float
    longest: float = 0.0
    began: float = field(default_factory=time.monotonic)
    _last: dict[str, float] = field(default_factory=dict)

    def tick(self, name: str = "") -> None:
        """Note that a piece of work has ended. Pieces of one `name` come one after another."""
        now = time.monotonic()
        if name in self._last:
            self.longest = max(self.longest, now - self._last[name])
        self._last[name] = now

    @property
    def left(self) -> float:
        """Seconds until the last piece of work must have begun."""
        end = self.began + self.seconds - min(RESERVE * self.seconds, MOST_RESERVED)
        return end - time.monotonic() - CAREFUL * self.longest

    @property
    def over(self) -> bool:
        """Whether another piece of work would end too late."""
        return self.left <= 0


_limits: list[TimeLimit] = []


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Let runs and sweeps in this context stop within so many seconds, as after Ctrl-C; None is no limit."""
    if seconds is None:
        yield
        return
    _limits.append(TimeLimit(seconds))
    try:
        yield
    finally:
        _limits.pop()


def time_limit() -> TimeLimit | None:
    """The limit of the innermost `limited`, or None."""
    if not _limits:
        return None
    return _limits[-1]
