"""Sweeps whose segments are trained in a thread of the test's process, where no Python has to be started for them."""

from __future__ import annotations

import json
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from fedsash.lab.sweeps import job, machines
from fedsash.lab.sweeps.job import Assignment, Messages
from fedsash.system.subprocesses import Child

_HERE = threading.local()
"""Its `program` is the one that trains in this thread."""
_ONE = threading.Lock()
"""PyTorch's settings are those of the whole process: one thread trains at a time."""


class InThread:
    """Does for a sweep what a `Child` does. What segments print is printed by the test."""

    def __init__(self, module: str, log: str, folder: str, environ: Mapping[str, str]) -> None:
        assert module == machines.JOB and folder == os.getcwd() and not environ
        self._log = Path(log)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        self._code = 0
        self._given: SimpleQueue[str | None] = SimpleQueue()
        self._said: SimpleQueue[bytes] = SimpleQueue()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def log(self) -> str:
        return str(self._log)

    def write(self, line: str) -> None:
        self._given.put(line)

    def said(self) -> bytes:
        return self._said.get()

    def code(self) -> int:
        self._thread.join()
        return self._code

    def signal(self, number: int) -> None:
        """The sweep was asked to stop. A test that asks for it is `in_process()`; so somebody stops the tests."""
        pytest.exit(f"the tests were stopped by {signal.Signals(number).name} during a sweep")

    def close(self) -> None:
        self._given.put(None)

    def say(self, text: str) -> None:
        """What the sweep hears next."""
        self._said.put(text.encode())

    def _train(self) -> None:
        _HERE.program = self
        engines: job.Engines = {}
        try:
            while (line := self._given.get()) is not None:
                with _ONE:
                    _trained(line, engines)
        except Exception:
            self._log.write_text(traceback.format_exc())
            self._code = 1
        finally:
            self._said.put(b"")


def _trained(line: str, engines: job.Engines) -> None:
    """What `job.main` does with a line; it keeps to one core, as all tests do."""
    job.train(Assignment.load(json.loads(line)["segment"]), engines)


class _Voice:
    """The messages of all threads, each of them to its own sweep."""

    def write(self, text: str) -> None:
        _HERE.program.say(text)

    def flush(self) -> None:
        pass


@contextmanager
def in_thread() -> Iterator[None]:
    """Sweeps on this machine train in threads of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "Child", InThread)
        patch.setattr(Messages, "stream", _Voice())
        yield


@contextmanager
def in_process() -> Iterator[None]:
    """Sweeps train in processes of their own, as they do for a user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "Child", Child)
        patch.setattr(Messages, "stream", None)
        yield
