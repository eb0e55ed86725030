"""Signals as requests to stop: the current round is finished first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from ..system.subprocesses import STOPS
from .time_limit import TIME_UP, time_limit

ECHO = 1.0
"""A SIGTERM or SIGHUP so many seconds after a signal is no second request: shells and queues send them twice."""


class StoppedError(KeyboardInterrupt):
    """A second request to stop: the current round is given up. `number` is that of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return ""


@dataclass
class Stop:
    """Whether somebody has asked to stop; `number` is that of the signal, or 0."""

    number: int = 0

    def __bool__(self) -> bool:
        return self.number != 0

    def keep_time(self) -> None:
        """Ask to stop if the time that the command has would not suffice for another round; called after each."""
        limit = time_limit()
        if limit is None or self.number:
            return
        limit.tick()
        if limit.over:
            self.number = TIME_UP


@contextmanager
def stop_flag(say: Callable[[str], None], doing: str = "stopping after this round") -> Iterator[Stop]:
    """A flag that the first request to stop sets; a line says what is `doing`. The second one raises `StoppedError`."""
    stop = Stop()

    def first(number: int) -> None:
        stop.number = number
        with suppress(RuntimeError):  # the signal came while a line was being printed
            say(f"{doing}; press Ctrl-C again to stop at once")

    def again(number: int) -> None:
        raise StoppedError(number)

    with on_stop(first, again):
        yield stop


@contextmanager
def on_stop(first: Callable[[int], None], again: Callable[[int], None]) -> Iterator[None]:
    """Call `first` with the number of the first signal that asks to stop, and `again` with that of any later one.

    Signals that this process ignores stay ignored (`nohup`). Outside the main thread this does nothing.
    """
    asked: list[float] = []

    def act(number: int, frame: object) -> None:
        now = time.monotonic()
        if not asked:
            asked.append(now)
            first(number)
        elif number == signal.SIGINT or now - asked[0] >= ECHO:
            again(number)

    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):  # None: set by a program in which Python runs
                    stack.callback(signal.signal, number, before)
                    signal.signal(number, act)
        yield
