"""A leg as a process gets it, and what the process says of it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TextIO

import torch

from ...exchange import RoundReport
from ...executors import LocalEngine
from ...runs import Callback, Driver, Fork, LiveRun, Result
from ...runs.folder import RunFolder, with_engine
from ..config import Experiment, parse
from ..timing import TimeStudy


@dataclass(frozen=True)
class Assigned:
    """A leg by its `name` in the sweep: its experiment, its folder, where it starts, and its last round.

    `steps` names what its local steps depend on, and `rounds_alike` is about how many rounds its process trains with
    such steps.

    The experiment may name code of one's own. It comes from the sweep itself, which has been allowed to use it.
    """

    name: str
    table: Mapping[str, Any]
    folder: Path
    fork: Fork | None
    until: int
    steps: str
    rounds_alike: int

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Assigned:
        """A leg from what `Process.train` has written."""
        return cls(
            name=message["name"],
            table=message["experiment"],
            folder=Path(message["folder"]),
            fork=message["fork"] and Fork(**message["fork"]),
            until=message["until"],
            steps=message["steps"],
            rounds_alike=message["rounds_alike"],
        )

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment with the engine of the leg before, so that the numbers stay the same.

        It has at most as many processes as there are cores. Each process has one thread: the number of threads could
        change the numbers, the number of processes cannot.
        """
        experiment = parse(self.table, own_code=True)
        engine = experiment.engine
        if not isinstance(engine, LocalEngine):
            return experiment
        engine = replace(engine, threads=1) if engine.threads == "auto" else engine
        engine = replace(engine, workers=1) if engine.workers == "auto" and torch.get_num_threads() == 1 else engine
        if self.fork is not None and not engine.resolved:
            settled = LocalEngine(pieces=engine.pieces, precision=engine.precision).settled
            began = with_engine(Path(self.fork.folder), settled)
            assert isinstance(began, LocalEngine)
            if began.resolved:
                engine = replace(began, workers=min(int(began.workers), torch.get_num_threads()))
        return replace(experiment, engine=engine)

    @property
    def trains(self) -> bool:
        """Whether rounds are left after those that it shares with other legs."""
        return self.fork is None or self.fork.round < self.until

    @property
    def begun(self) -> bool:
        """Whether it has begun."""
        return RunFolder(self.folder).begun

    def settings(self, driver: Driver) -> dict[str, Any]:
        """The arguments of its run, beside the driver, the rounds, the folder and the fork."""
        settings = self.experiment.settings(driver)
        own = {"callbacks": [*settings["callbacks"], Tell(self.name)], "progress": False, "until": self.until}
        return settings | own

    def ended(self, result: Result | TimeStudy) -> None:
        """Tell the end. A run that has ended early has reached its last round, too: nothing is left to train."""
        reached = self.until if result.summary["ended_early"] else result.summary["rounds"]
        why = signal.Signals(result.signal).name if result.signal else ""
        shown = {key: result.summary[key] for key in ("metric", "models", "rounds", "ended_early")}
        shown["stuck"] = result.summary.get("stuck")  # a study of time has no updates that could be missing
        tell(leg=self.name, reached=reached, summary=shown, error=f"stopped by {why}" if why else "")

    def failed(self, why: str) -> None:
        """Tell that it can't be trained."""
        tell(leg=self.name, reached=None, error=why)


class Tell(Callback):
    """Tells the sweep the number of every finished round."""

    def __init__(self, leg: str) -> None:
        self._leg = leg

    def round(self, run: LiveRun, report: RoundReport) -> None:
        tell(leg=self._leg, round=run.round)


class Messages:
    """Where this process's messages to the sweep go: its standard output, until that is for everything else."""

    stream: ClassVar[TextIO | None] = None

    @classmethod
    def keep_apart(cls) -> None:
        """From now on whatever else is printed here, as by code of one's own, goes where errors go: into the log."""
        cls.stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)


def tell(**message: Any) -> None:
    """Tell the sweep."""
    print(json.dumps(message), file=Messages.stream, flush=True)
