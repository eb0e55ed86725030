"""The progress of what takes long, in lines."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 5.0
"""The shortest time between two lines."""


class ProgressLines:
    """Says a line now and then: the first after `SECONDS`, and then at most one in so many."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = time.monotonic()

    def show(self, line: str) -> None:
        """Say how much is done, unless the last line, or the beginning, was a moment ago."""
        now = time.monotonic()
        if now - self._said >= SECONDS:
            self._said = now
            self._say(line)
