"""The signals that ask a process to stop, and what the end of a process says."""

from __future__ import annotations

import signal

STOPS = tuple(number for number in signal.Signals if number.name in ("SIGINT", "SIGTERM", "SIGHUP"))
"""Ctrl-C, what queues and shutdowns send, and a terminal that was closed; Windows has no SIGHUP."""


def ending(code: int | None) -> str:
    """Why a process with this exit code has ended; a negative one is the number of a signal."""
    if code is None or code >= 0:
        return f"exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    perhaps = ", out of memory perhaps" if names.get(-code) == "SIGKILL" else ""
    return f"killed by {names.get(-code, f'signal {-code}')}{perhaps}"
