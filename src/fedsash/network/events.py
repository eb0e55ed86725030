"""Letting events happen."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simpy import Environment

from .clients import Population
from .learning import Learner
from .links import Channel
from .settings import Network
from .site import Site, Steps


def begin(
    env: Environment, network: Network, learner: Learner, *, rounds: float, seed: int, up: Channel | None = None
) -> Site:
    """A site with its clients; without `up`, the link at work, it has the network's link to itself."""
    population = Population(network.clients, learner.samples, seed)
    site = Site(env, network, population, learner, up or network.link.open(env), rounds)
    if network.seconds is not None:
        env.timeout(network.seconds).callbacks.append(lambda _: site.end("its time was over"))
    return site


def play(site: Site, process: Steps) -> None:
    """Let events happen until the run is over; `process` is that of a scheduler, `scheduler.run(site)`."""
    site.env.process(process)
    advance(site, lambda: False)


def advance(site: Site, done: Callable[[], bool]) -> None:
    """Let events happen until something is done, or the run is over; it is where nothing can happen any more."""
    env = site.env
    with _few_collections():
        while site.running and not done() and env.peek() < math.inf:
            env.step()
    if site.running and not done():
        site.end("no client will ever be there again")


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let the garbage collector look less often: it would spend most of a large run on clients that stay."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
