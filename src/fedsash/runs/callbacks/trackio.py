"""Trackio."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from ...evaluation import Score
from ...server.federation import Federation
from ...settings.errors import RunError, library, one_line
from .. import Callback, LiveRun, Result
from .rows import by_round, run_name


@dataclass
class Trackio(Callback, name="trackio"):
    """Writes all recorded numbers and the settings for Trackio: into files of this machine, without a network.

    A number is called `MODEL/SPLIT/METRIC`, such as `wima/test/accuracy`, and its step is the round. Trackio tells runs
    apart by their names, so the name ends with the run's id. A resumed run goes on in the same run of Trackio, with the
    rounds that Trackio does not have. The folder, or a server's address, comes from Trackio's own settings:
    `TRACKIO_DIR`, `TRACKIO_SERVER_URL` and so on.
    """

    project: str = "fedsash"
    """the project of Trackio in which the run lies"""
    run_name: str = ""
    """the run's name there, before its id; empty: that of its folder"""

    _sent: int = field(default=0, init=False, repr=False, compare=False)
    _first: int = field(default=0, init=False, repr=False, compare=False)
    _run: Any = field(default=None, init=False, repr=False, compare=False)

    def fits(self, federation: Federation) -> None:
        with library("trackio", "Trackio", "fedsash[trackio]"):
            import trackio  # noqa: F401

    def begin(self, run: LiveRun) -> None:
        import trackio

        name = run_name(self.run_name, run.folder)
        how: dict[str, Any] = {"resume": "allow", "embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
        how["name"] = f"{name} {run.id}".strip()
        how["config"] = dict(run.config)
        with _refused(), redirect_stdout(sys.stderr):
            # In a context of its own: else it ends a run that the caller has open.
            self._run = Context().run(trackio.init, self.project, **how)
        self._first = self._run._next_step  # the library has no public name for the steps that it has
        self._sent = 0
        self._send(run)

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        self._send(run)

    def end(self, run: LiveRun, result: Result | None) -> None:
        self._send(run)
        with redirect_stdout(sys.stderr):
            self._run.finish()

    def _send(self, run: LiveRun) -> None:
        new = run.history[self._sent :]
        self._sent = len(run.history)
        for index, values in by_round(new):
            if index >= self._first:
                self._run.log(values, step=index)


@contextmanager
def _refused() -> Iterator[None]:
    """Turn an error of Trackio into one line."""
    try:
        yield
    except (OSError, ValueError) as error:  # such as: a name of a project that it keeps for itself
        raise RunError(f"Trackio: {one_line(error)}") from error
