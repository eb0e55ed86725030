"""A process that trains segments of a sweep.

It reads a line of JSON from standard input for each segment. It writes a line of JSON to standard output after every
round and at the end of a segment; whatever else is printed goes to the log. If nobody reads its output, it stops at
once and saves its last state: no process survives a killed sweep, and none holds runs that go on elsewhere.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Thread, get_ident
from typing import Any, ClassVar, TextIO, TypeAlias

import torch

from ... import runs
from ...client.messages import RoundReport
from ...engines import LocalEngine
from ...runs import Callback, Driver, Fork, LiveRun, Result
from ...runs.folder import RunFolder, with_engine
from ...runs.interrupts import ECHO
from ...settings.errors import FedsashError, one_line
from ...system.lock import when_free
from ...system.subprocesses import STOPS
from ..config import Experiment, NetworkExperiment, parse
from ..timing import TimeStudy

log = logging.getLogger("fedsash")

Engines: TypeAlias = dict[tuple[str, int], dict[str, Any]]
"""The engines of this process as they describe themselves, by the steps and the number of cores."""


def main() -> None:
    """Train one segment after another, each on the `cores` that its line names."""
    Messages.keep_apart()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # they come from the sweep, whatever it does with its own
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # a Ray that fedsash has started blocks them
    Thread(target=_stop_unheard, daemon=True).start()
    engines: Engines = {}
    for line in sys.stdin:
        job = json.loads(line)
        _keep_to(job["cores"])
        train(Assignment.load(job["segment"]), engines)


def train(segment: Assignment, engines: Engines) -> None:
    """Train a segment, and tell its end. If another sweep trains it at the moment, wait until that one has ended."""

    def waits(line: str) -> None:
        tell(segment=segment.name, note=f"waiting: {line}")

    with _telling_warnings(segment.name):
        try:
            result = when_free(lambda: trained(segment, engines), waits)
        except (FedsashError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            segment.failed(one_line(error))
        else:
            segment.ended(result)


@contextmanager
def _telling_warnings(segment: str) -> Iterator[None]:
    """Tell the sweep each warning of a segment. It is also in the log of this process."""
    handler = _TellWarnings(segment)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def trained(segment: Assignment, engines: Engines) -> Result | TimeStudy:
    """Begin or resume the run up to the segment's last round, and return its result.

    The first run with such steps gets the engine that is fastest for all rounds of them in this process, and the others
    have the same one: it is measured once, and what is compiled for the first run serves them all. A run on a network
    chooses its own.
    """
    experiment = segment.experiment
    if isinstance(experiment, NetworkExperiment) and experiment.stateless:

        def stepped(round: int) -> None:
            tell(segment=segment.name, round=round)

        return experiment.study(segment.folder, stepped=stepped, again=segment.begun)
    driver = experiment.driver()
    settings = segment.settings(driver)
    if segment.begun:
        return runs.resume(driver, experiment.rounds, segment.folder, **settings)
    if isinstance(experiment, NetworkExperiment):
        return runs.run(driver, experiment.rounds, out=segment.folder, **settings)
    key = (segment.steps, torch.get_num_threads())
    driver = driver.settled(engines.get(key, {}))
    with driver.federation:
        if segment.trains:
            driver.prepare(segment.rounds_alike)
            engines[key] = driver.federation.described()
        return runs.run(driver, experiment.rounds, out=segment.folder, fork=segment.fork, **settings)


def _stop_unheard() -> None:
    """Stop this process at once, by the two signals that a sweep would send, when nobody reads its output any more."""
    if not hasattr(select, "poll"):  # Windows
        return
    poll = select.poll()
    assert Messages.stream is not None
    poll.register(Messages.stream, 0)  # that nobody reads is an error, which is always told
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(2 * ECHO)
    os.kill(os.getpid(), signal.SIGINT)


def _keep_to(cores: list[int]) -> None:
    """Use only these cores; without any, one core, whichever the system gives."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(max(len(cores), 1))


@dataclass(frozen=True)
class Assignment:
    """A segment by its `name` in the sweep: its experiment, its folder, where it starts, and its last round.

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
    def load(cls, message: Mapping[str, Any]) -> Assignment:
        """A segment from what `Process.train` has written."""
        fork = message["fork"]
        return cls(
            name=message["name"],
            table=message["experiment"],
            folder=Path(message["folder"]),
            fork=None if fork is None else Fork(**fork),
            until=message["until"],
            steps=message["steps"],
            rounds_alike=message["rounds_alike"],
        )

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment with the engine of the segment before, so that the numbers stay the same.

        It has at most as many processes as there are cores. Each process has one thread: the number of threads could
        change the numbers, the number of processes cannot.
        """
        experiment = parse(self.table, own_code=True)
        engine = experiment.engine
        if not isinstance(engine, LocalEngine):
            return experiment
        if engine.threads == "auto":
            engine = replace(engine, threads=1)
        if engine.workers == "auto" and torch.get_num_threads() == 1:
            engine = replace(engine, workers=1)
        if self.fork is not None and not engine.resolved:
            settled = LocalEngine(pieces=engine.pieces, precision=engine.precision).settled
            earlier = with_engine(Path(self.fork.folder), settled)
            assert isinstance(earlier, LocalEngine)
            if earlier.resolved:
                engine = replace(earlier, workers=min(int(earlier.workers), torch.get_num_threads()))
        return replace(experiment, engine=engine)

    @property
    def trains(self) -> bool:
        """Whether rounds are left after those that it shares with other segments."""
        return self.fork is None or self.fork.round < self.until

    @property
    def begun(self) -> bool:
        """Whether it has begun."""
        return RunFolder(self.folder).begun

    def settings(self, driver: Driver) -> dict[str, Any]:
        """The arguments of its run, beside the driver, the rounds, the folder and the fork."""
        settings = dict(self.experiment.settings(driver))
        settings["callbacks"] = [*settings["callbacks"], Tell(self.name)]
        settings["progress"] = False
        settings["until"] = self.until
        return settings

    def ended(self, result: Result | TimeStudy) -> None:
        """Tell the end. A run that has ended early has reached its last round, too: nothing is left to train."""
        reached = self.until if result.summary["ended_early"] else result.summary["rounds"]
        error = ""
        if result.signal:
            error = f"stopped by {signal.Signals(result.signal).name}"
        summary = {key: result.summary[key] for key in ("metric", "models", "rounds", "ended_early")}
        summary["stuck"] = result.summary.get("stuck")  # a study of time has no updates that could be missing
        tell(segment=self.name, reached=reached, summary=summary, error=error)

    def failed(self, reason: str) -> None:
        """Tell that it can't be trained."""
        tell(segment=self.name, reached=None, error=reason)


class Tell(Callback):
    """Tells the sweep the number of every finished round."""

    def __init__(self, segment: str) -> None:
        self._segment = segment

    def round(self, run: LiveRun, report: RoundReport) -> None:
        tell(segment=self._segment, round=run.round)


class _TellWarnings(logging.Handler):
    """Tells the sweep the warnings of a segment, which this thread trains, and writes them where errors go."""

    def __init__(self, segment: str) -> None:
        super().__init__(logging.WARNING)
        self._segment = segment
        self._thread = get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            line = record.getMessage()
            print(f"{self._segment}: {line}", file=sys.stderr, flush=True)
            tell(segment=self._segment, warning=line)


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


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {one_line(error)}", file=sys.stderr)  # the sweep shows the last line
        sys.exit(1)
