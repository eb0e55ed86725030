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
from threading import Thread
from typing import Any, TypeAlias

import torch

from ... import runs
from ...basics.lock import when_free
from ...basics.signals import STOPS
from ...runs import Result
from ...runs.interrupts import ECHO
from ...settings.errors import FedsashError, one_line
from ..config import NetworkExperiment
from ..timing import TimeStudy
from .assigned import Assigned, Messages, tell

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
    """Train a leg, and tell its end. If another sweep trains it at the moment, wait until that one has ended."""
    try:
        ended = when_free(lambda: trained(leg, engines), lambda line: tell(leg=leg.name, note=f"waiting: {line}"))
    except (FedsashError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        leg.failed(one_line(error))
    else:
        leg.ended(ended)


def trained(leg: Assigned, engines: Engines) -> Result | TimeStudy:
    """Begin or resume the run up to the leg's last round, and return its result.

    The first run with such steps gets the engine that is fastest for all rounds of them in this process, and the others
    have the same one: it is measured once, and what is compiled for the first run serves them all. A run on a network
    chooses its own.
    """
    experiment = leg.experiment
    if isinstance(experiment, NetworkExperiment) and experiment.stateless:
        return experiment.study(leg.folder, stepped=lambda round: tell(leg=leg.name, round=round), again=leg.begun)
    driver = experiment.driver()
    settings = leg.settings(driver)
    if leg.begun:
        return runs.resume(driver, experiment.rounds, leg.folder, **settings)
    if isinstance(experiment, NetworkExperiment):
        return runs.run(driver, experiment.rounds, out=leg.folder, **settings)
    place = leg.steps, torch.get_num_threads()
    alike = driver.settled(engines.get(place, {}))
    with alike.federation:
        if leg.trains:
            alike.prepare(leg.rounds_alike)
            engines[place] = alike.federation.described()
        return runs.run(alike, experiment.rounds, out=leg.folder, fork=leg.fork, **settings)


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
