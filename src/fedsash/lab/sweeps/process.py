"""A process that trains legs, and its messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ...basics.signals import ending
from ..summaries import metric_of, stuck_text
from .plan import Leg


@dataclass(frozen=True)
class Message:
    """A message of a process: a finished round of a `leg`, or its end, with the round that it reached.

    `reason` says why a leg failed, and `results` holds its models' values. `note` is a line for the user. A leg that is
    handed back is to be trained `alone`. After a `crash` the process is gone.
    """

    sender: Process
    leg: str = ""
    round: int | None = None
    ended: bool = False
    reached: int | None = None
    results: str = ""
    reason: str = ""
    note: str = ""
    alone: bool = False
    crash: bool = False


class Process:
    """Trains one stack of legs after another, and puts its messages into the queue `heard`.

    It runs in a session of the operating system of its own, so no terminal sends it a signal. Its output goes into
    the file `log`.
    """

    def __init__(self, log: Path, heard: SimpleQueue[Message]) -> None:
        self._log, self._heard = log, heard
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "fedsash.lab.sweeps.job"],  # -P: no file that lies here is a library
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def train(self, legs: Sequence[Leg], stack: Sequence[Leg], out: Path, cores: list[int]) -> None:
        """Start training the `legs` that are left of a `stack` of the sweep in the folder `out`."""
        job = {"legs": [_told(leg, out) for leg in legs], "stack": [leg.folder for leg in stack], "out": str(out)}
        self._write(json.dumps(job | {"cores": cores}) + "\n")

    def stop(self) -> None:
        """Let it finish its round and save its state."""
        self._process.send_signal(signal.SIGTERM)

    def stop_now(self) -> None:
        """Let it give up its round and save its last state."""
        self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Tell the process that there are no more legs, so that it ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._listener.join()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the thread that listens reports why it has ended

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            ended, results = "reached" in told, _results(told.pop("summary", {}))
            reason = told.pop("error", "")
            self._heard.put(Message(self, ended=ended, results=results, reason=reason, **told))
        code = self._process.wait()
        self._heard.put(Message(self, ended=True, reason=self._why(code), crash=True))

    def _why(self, code: int) -> str:
        """Why a process has ended without a message."""
        if code < 0:
            return ending(code)
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{said[-1].strip() if said else ending(code)} (see {os.path.relpath(self._log)})"


def _told(leg: Leg, out: Path) -> dict[str, Any]:
    """A leg as its process is told of it."""
    fork = leg.parent and {"folder": str(out / leg.parent.folder), "round": leg.first, "names": leg.renamed}
    place = {"name": leg.folder, "folder": str(out / leg.folder)}
    return place | {"experiment": leg.experiment.table(), "fork": fork, "until": leg.last}


def _results(summary: dict[str, Any]) -> str:
    """The models' values, and whether the run ended early or is stuck."""
    if not summary:
        return ""
    criterion, means = metric_of(summary), {name: of["last_mean"] for name, of in summary["models"].items()}
    known = [f"{name} {criterion.text(mean)}" for name, mean in means.items() if mean is not None]
    early = [f"ended after round {summary['rounds']}"] if summary.get("ended_early") else []
    still = [stuck_text(since)] if (since := summary.get("stuck")) else []
    return ", ".join([*known, *early, *still])
