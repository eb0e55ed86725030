"""A process that trains legs, and its messages."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from ...runs.summaries import metric_of, stuck_text
from ...settings.errors import WorkerError, one_line
from ...system.subprocesses import ending
from .plan import Leg


@dataclass(frozen=True)
class Message:
    """A message of a process: a finished round of a `leg`, or its end, with the round that it reached.

    `reason` says why a leg failed, and `results` holds its models' values. `note` is a line for the user. After a
    `crash` the process is gone.
    """

    sender: Process
    leg: str = ""
    round: int | None = None
    ended: bool = False
    reached: int | None = None
    results: str = ""
    reason: str = ""
    note: str = ""
    crash: bool = False


@dataclass(frozen=True)
class StopRequest:
    """A signal that asks a sweep to stop, after the rounds or `at_once`."""

    number: int
    at_once: bool = False


class Program(Protocol):
    """A `Child`, wherever it runs. If it can't be reached any more, `said` and `code` raise `WorkerError`."""

    def log(self) -> str: ...
    def write(self, line: str) -> None: ...
    def said(self) -> bytes: ...
    def code(self) -> int: ...
    def signal(self, number: int) -> None: ...
    def close(self) -> None: ...


class Process:
    """Trains one leg after another in a program, and puts its messages into the queue `heard`."""

    def __init__(self, program: Program, heard: SimpleQueue[Message | StopRequest]) -> None:
        self._program = program
        self._heard = heard
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def train(self, leg: Leg, alike: dict[str, Any], out: Path, cores: Sequence[int]) -> None:
        """Start training a leg of the sweep in the folder `out`.

        `alike` says which legs have such steps, and about how many rounds of them the process trains in all. It keeps
        to the `cores` of its machine; without any, it uses one, whichever it gets.
        """
        message = _message(leg, out) | alike
        self._program.write(json.dumps({"leg": message, "cores": [*cores]}))

    def stop(self, at_once: bool) -> None:
        """Let it finish its round and save its state; or, `at_once`, give up its round and save its last state."""
        self._program.signal(signal.SIGINT if at_once else signal.SIGTERM)

    def close(self) -> None:
        """Tell the process that there are no more legs, so that it ends."""
        self._program.close()

    def join(self) -> None:
        """Wait for its end."""
        self._listener.join()

    def _listen(self) -> None:
        try:
            for line in self._lines():
                told = json.loads(line)
                ended = "reached" in told
                results = _results(told.pop("summary", {}))
                reason = told.pop("error", "")
                self._heard.put(Message(self, ended=ended, results=results, reason=reason, **told))
            reason = self._why(self._program.code())
        except (WorkerError, OSError) as error:  # its log may be missing
            reason = one_line(error)
        except Exception as error:  # whatever it is, the sweep must not wait for ever
            reason = f"its messages can't be read: {type(error).__name__} {one_line(error)}"
        self._heard.put(Message(self, ended=True, reason=reason, crash=True))

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        while said := self._program.said():
            *lines, rest = (rest + said).split(b"\n")
            yield from lines

    def _why(self, code: int) -> str:
        """Why a process has ended without a message."""
        if code < 0:
            return ending(code)
        log = Path(self._program.log())
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{said[-1].strip() if said else ending(code)} (see {os.path.relpath(log)})"


def _message(leg: Leg, out: Path) -> dict[str, Any]:
    """A leg as its process is told of it."""
    fork = leg.parent and {"folder": str(out / leg.parent.folder), "round": leg.first, "names": leg.renamed}
    place = {"name": leg.folder, "folder": str(out / leg.folder)}
    return place | {"experiment": leg.experiment.table(), "fork": fork, "until": leg.last}


def _results(summary: dict[str, Any]) -> str:
    """The models' values, and whether the run ended early or is stuck."""
    if not summary:
        return ""
    criterion = metric_of(summary)
    means = {name: of["last_mean"] for name, of in summary["models"].items()}
    known = [f"{name} {criterion.text(mean)}" for name, mean in means.items() if mean is not None]
    early = [f"ended after round {summary['rounds']}"] if summary.get("ended_early") else []
    still = [stuck_text(since)] if (since := summary.get("stuck")) else []
    return ", ".join([*known, *early, *still])
