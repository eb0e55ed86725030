"""Ctrl-C as a wish: what is running comes to a good end first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_flag(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one interrupts at once."""
    asked = threading.Event()

    def act() -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        say("stopping after this round; press Ctrl-C again to stop at once")

    with on_interrupt(act):
        yield asked


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Act on every Ctrl-C instead of being interrupted; outside the main thread Ctrl-C is left alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
