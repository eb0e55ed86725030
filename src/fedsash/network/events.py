"""The simulation of events."""

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
    """A site with its clients. `up` is a link that several sites share; without it the site has a link of its own."""
    population = Population(network.clients, learner.samples, seed)
    site = Site(env, network, population, learner, up or network.link.open(env), rounds)
    if network.seconds is not None:
        env.timeout(network.seconds).callbacks.append(lambda _: site.end("its simulated time was over"))
    return site


def play(site: Site, process: Steps) -> None:
    """Simulate events until the run is over. `process` is `scheduler.run(site)`."""
    site.env.process(process)
    advance(site, lambda: False)


def advance(site: Site, done: Callable[[], bool]) -> None:
    """Simulate events until `done()` holds or the run is over. Without further events the run is over."""
    env = site.env
    with _few_collections():
        while site.running and not done() and env.peek() < math.inf:
            env.step()
    if site.running and not done():
        site.end("no client will ever be present again")


@contextmanager
def _few_collections() -> Iterator[None]:
    """Run the garbage collector less often: in a large run it would spend most of the time on objects that stay."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
