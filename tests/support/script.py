"""A process that starts one more for each order: importing takes long, and a test's own process may have threads.

Its runs draw no pictures, which would take most of their time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, sys
from importlib import import_module
sys.path[:] = json.loads(sys.argv[1])
from fedsash.runs.pictures import paper
from support.script import tell
paper.drawn = lambda picture, form: b""
act = getattr(import_module(sys.argv[2]), sys.argv[3])
for order in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        tell("process", os.getpid())
        act(**json.loads(order))
        os._exit(0)
    tell("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def tell(*words: object) -> None:
    """Tell the script's owner in one write, since the process and the one that it started write at the same time."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def gone(pid: int) -> bool:
    """Whether a process has ended, be it as a zombie for which nobody has waited."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def shared(request: pytest.FixtureRequest, module: str, function: str) -> Iterator[Script]:
    """A script for several tests, for whose work the last of them doesn't pay."""
    started = Script(module, function)
    yield started
    budget: Any = request.config.pluginmanager.get_plugin("budget")
    budget.uncounted(started.close)


class Script:
    """Calls a function of a test module for each order, in a process, and a process group, of its own."""

    def __init__(self, module: str, function: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(sys.path), module, function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout

    def begin(self, **order: Any) -> int:
        """Call the function with these arguments; the id of the process."""
        self.orders.write(json.dumps(order, default=str) + "\n")
        self.orders.flush()
        return int(self.wait_for("process"))

    def wait_for(self, *words: str) -> str:
        """The last word of the next line that begins with one of these words."""
        for line in self.answers:
            if line.startswith(words):
                return line.split()[-1]
            assert not line.startswith("ended"), f"the process ended with {line.split()[-1]} before there was {words}"
        raise AssertionError(f"the script ended before there was {words}")

    def close(self) -> None:
        self.orders.close()
        self.answers.close()
        try:
            assert self.process.wait() == 0
        finally:
            self.process.kill()
