"""The simulation of events."""

from __future__ import annotations

from simpy import Environment

from .clients import Population
from .learning import Learner
from .links import Channel
from .settings import Network
from .simulated import SimulatedSite
from .site import Steps


def begin(
    env: Environment, network: Network, learner: Learner, *, rounds: float, seed: int, up: Channel | None = None
) -> SimulatedSite:
    """A site with its clients. `up` is a link that several sites share; without it the site has a link of its own."""
    population = Population(network.clients, learner.samples, seed)
    site = SimulatedSite(env, network, population, learner, up or network.link.open(env), rounds)
    if network.seconds is not None:
        env.timeout(network.seconds).callbacks.append(lambda _: site.end("its simulated time was over"))
    return site


def play(site: SimulatedSite, process: Steps) -> None:
    """Simulate events until the run is over. `process` is `scheduler.run(site)`."""
    site.env.process(process)
    site.advance(lambda: False)
