"""A process that trains segments, and its messages."""

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
from .plan import Segment


@dataclass(frozen=True)
class Message:
    """A message of a process: a finished round of a `segment`, or its end, with the round that it reached.

    `reason` says why a segment failed, and `results` holds its models' values. `note` is a line for the user, `warning`
    one of the log. After a `crash` the process is gone.
    """

    sender: Process
    segment: str = ""
    round: int | None = None
    ended: bool = False
    reached: int | None = None
    results: str = ""
    reason: str = ""
    note: str = ""
    warning: str = ""
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
    """Trains one segment after another in a program, and puts its messages into the queue `messages`."""

    def __init__(self, program: Program, messages: SimpleQueue[Message | StopRequest]) -> None:
        self._program = program
        self._messages = messages
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def train(self, segment: Segment, alike: dict[str, Any], out: Path, cores: Sequence[int]) -> None:
        """Start training a segment of the sweep in the folder `out`.

        `alike` says which segments have such steps, and about how many rounds of them the process trains in all. It
        keeps to the `cores` of its machine; without any, it uses one, whichever it gets.
        """
        message = _message(segment, out) | alike
        self._program.write(json.dumps({"segment": message, "cores": [*cores]}))

    def stop(self, at_once: bool) -> None:
        """Let it finish its round and save its state; or, `at_once`, give up its round and save its last state."""
        self._program.signal(signal.SIGINT if at_once else signal.SIGTERM)

    def close(self) -> None:
        """Tell the process that there are no more segments, so that it ends."""
        self._program.close()

    def join(self) -> None:
        """Wait for its end."""
        self._listener.join()

    def _listen(self) -> None:
        """Put what the program prints among the messages, and at last its end."""
        try:
            for line in self._lines():
                fields = json.loads(line)
                ended = "reached" in fields
                results = _results(fields.pop("summary", {}))
                reason = fields.pop("error", "")
                self._messages.put(Message(self, ended=ended, results=results, reason=reason, **fields))
            reason = self._why(self._program.code())
        except (WorkerError, OSError) as error:  # its log may be missing
            reason = one_line(error)
        except Exception as error:  # whatever it is, the sweep must not wait for ever
            reason = f"its messages can't be read: {type(error).__name__} {one_line(error)}"
        self._messages.put(Message(self, ended=True, reason=reason, crash=True))

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        while output := self._program.said():
            *lines, rest = (rest + output).split(b"\n")
            yield from lines

    def _why(self, code: int) -> str:
        """Why a process has ended without a message."""
        if code < 0:
            return ending(code)
        log = Path(self._program.log())
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        reason = lines[-1] if lines else ending(code)
        return f"{reason} (see {os.path.relpath(log)})"


def _message(segment: Segment, out: Path) -> dict[str, Any]:
    """A segment as its process gets it (`job.Assignment`)."""
    fork = None
    if segment.parent is not None:
        parent = str(out / segment.parent.folder)
        fork = {"folder": parent, "round": segment.first, "names": segment.renamed}
    return {
        "name": segment.folder,
        "folder": str(out / segment.folder),
        "experiment": segment.experiment.table(),
        "fork": fork,
        "until": segment.last,
    }


def _results(summary: dict[str, Any]) -> str:
    """The models' values, and whether the run ended early or is stuck."""
    if not summary:
        return ""
    criterion = metric_of(summary)
    words = []
    for name, model in summary["models"].items():
        if model["last_mean"] is not None:
            words.append(f"{name} {criterion.text(model['last_mean'])}")
    if summary.get("ended_early"):
        words.append(f"ended after round {summary['rounds']}")
    if summary.get("stuck"):
        words.append(stuck_text(summary["stuck"]))
    return ", ".join(words)
