"""A process that trains legs of a sweep.

It reads a line of JSON from standard input for each leg. It writes a line of JSON to standard output after every round
and at the end of a leg; whatever else is printed goes to the log. If nobody reads its output, it stops at once and
saves its last state: no process survives a killed sweep, and none holds runs that go on elsewhere.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, TypeAlias, TypeVar

import torch

from ... import runs
from ...basics.lock import when_free
from ...basics.signals import STOPS
from ...runs import Result
from ...runs.interrupts import ECHO
from ...settings.errors import FedsashError, one_line
from ..config import NetworkExperiment
from ..timing import TimeStudy
from .assigned import Assigned, Messages, Tell, tell

T = TypeVar("T")

Engines: TypeAlias = dict[tuple[str, int], dict[str, Any]]
"""The engines of this process as they describe themselves, by the steps and the number of cores."""


def main() -> None:
    """Train one leg after another, each on the `cores` that its line names."""
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
        train(Assigned.of(job["leg"]), engines)


def train(leg: Assigned, engines: Engines) -> None:
    """Train a leg, and tell its end."""
    try:
        experiment = leg.experiment
        ended = simulated(leg, experiment) if isinstance(experiment, NetworkExperiment) else trained(leg, engines)
    except (FedsashError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        leg.failed(one_line(error))
    else:
        leg.ended(ended)


def simulated(leg: Assigned, experiment: NetworkExperiment) -> Result | TimeStudy:
    """Begin or resume the run, and return its result. It is finished if its simulated time is over."""

    def go() -> Result | TimeStudy:
        if experiment.stateless:
            return experiment.study(leg.folder, stepped=partial(_stepped, leg), again=leg.begun)
        return (experiment.resume if leg.begun else experiment.run)(leg.folder, callbacks=[Tell(leg.name)])

    return _when_free(leg, go)


def trained(leg: Assigned, engines: Engines) -> Result:
    """Begin or resume the run up to the leg's last round, and return its result.

    The first run with such steps gets the engine that is fastest for all rounds of them in this process, and the others
    have the same one: it is measured once, and what is compiled for the first run serves them all.
    """
    place = leg.steps, torch.get_num_threads()

    def go() -> Result:
        driver = leg.experiment.driver()
        rounds = leg.experiment.rounds
        settings = leg.settings(driver)
        if leg.begun:
            return runs.resume(driver, rounds, leg.folder, **settings)
        alike = driver.settled(engines.get(place, {}))
        with alike.federation:
            if leg.trains:
                alike.prepare(leg.rounds_alike)
                engines[place] = alike.federation.described()
            return runs.run(alike, rounds, out=leg.folder, fork=leg.fork, **settings)

    return _when_free(leg, go)


def _stepped(leg: Assigned, round: int) -> None:
    tell(leg=leg.name, round=round)


def _when_free(leg: Assigned, go: Callable[[], T]) -> T:
    """Train a leg. If another sweep trains it at the moment, wait until that one has finished or stopped."""
    return when_free(go, lambda line: tell(leg=leg.name, note=f"waiting: {line}"))


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


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {one_line(error)}", file=sys.stderr)  # the sweep shows the last line
        sys.exit(1)
