"""Subprocesses: lines of text to them and from them, and the signals that end them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

STOPS = tuple(number for number in signal.Signals if number.name in ("SIGINT", "SIGTERM", "SIGHUP"))
"""Ctrl-C, what queues and shutdowns send, and a terminal that was closed; Windows has no SIGHUP."""


def ending(code: int | None) -> str:
    """Why a process with this exit code has ended; a negative one is the number of a signal."""
    if code is None or code >= 0:
        return f"exit code {code}"
    number = -code
    names = {known.value: known.name for known in signal.Signals}
    name = names.get(number, f"signal {number}")
    if name == "SIGKILL":  # which Linux sends to a process that takes the machine's last memory
        return f"killed by {name}, out of memory perhaps"
    return f"killed by {name}"


class Child:
    """A module of Python as a program. It works in `folder`, and has `environ` beside this process's own environment.

    It runs in a session of the operating system of its own, so no terminal sends it a signal. Its errors go to the end
    of the file `log`, in whose name `{machine}` stands for this machine. A call of `said` waits; the others do not.
    """

    def __init__(self, module: str, log: str, folder: str, environ: Mapping[str, str]) -> None:
        self._log = log.replace("{machine}", socket.gethostname())
        Path(self._log).parent.mkdir(parents=True, exist_ok=True)
        with open(self._log, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],  # -P: no file that lies here is a library
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=folder,
                env=os.environ | environ,
                start_new_session=True,
            )

    def log(self) -> str:
        """The file of its errors."""
        return self._log

    def write(self, line: str) -> None:
        """Give it a line. If it has ended, `said` tells so."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def said(self) -> bytes:
        """What it has written since the last call, at least a byte; nothing if it has ended."""
        assert self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), 2**16)

    def code(self) -> int:
        """Its exit code, after it has ended."""
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Tell it that there are no more lines."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
