"""Ctrl-C as a request to stop: the current round is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_flag(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets. The second one interrupts at once."""
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
    """Call a function on every Ctrl-C instead of an interrupt. Outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
