"""As `script`, where importing would take longer than the test: the process is forked from that of the tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import NoReturn

from .script import Script, tell


class Forked(Script):
    """Calls a function for each order, in a process, and a process group, of its own. No run has begun as yet."""

    def __init__(self, act: Callable[..., object]) -> None:
        inbox, outbox = os.pipe()
        heard, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(outbox)
            os.close(heard)
            os.dup2(told, 1)
            ending(lambda: serve(act, inbox))
        os.close(inbox)
        os.close(told)
        self.orders = os.fdopen(outbox, "w")
        self.answers = os.fdopen(heard)

    def close(self) -> None:
        self.orders.close()
        self.answers.close()
        assert os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0


def serve(act: Callable[..., object], inbox: int) -> None:
    """Fork for each order, and tell how its process has ended."""
    for order in os.fdopen(inbox):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            tell("process", os.getpid())
            ending(lambda order=order: act(**json.loads(order)))
        tell("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def ending(act: Callable[[], object]) -> NoReturn:
    """Call a function, and end this process before it comes back to the tests."""
    code = 1
    try:
        act()
        code = 0
    finally:
        os._exit(code)
