"""A site on a simulated network: time goes from event to event."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simpy import Environment

from .clients import Population
from .learning import Learner, Start
from .links import Channel
from .site import Site, Steps
from .trip import Trip

if TYPE_CHECKING:
    from .settings import Network


class SimulatedSite(Site):
    """A site on a simulated network, with the link `up` to the server."""

    def __init__(
        self,
        env: Environment,
        network: Network,
        population: Population,
        learner: Learner,
        up: Channel,
        rounds: float,
        seed: int,
    ) -> None:
        super().__init__(env, learner, population.size, rounds, seed)
        self.network = network
        self.population = population
        self.up = up
        self.down: Channel | None = None
        if network.down is not None:
            self.down = network.down.open(env)
        self.presence = population.presence()

    def advance(self, done: Callable[[], bool]) -> None:
        """Simulate events until `done()` holds or the run is over. Without further events the run is over."""
        env = self.env
        with _few_collections():
            while self.running and not done() and env.peek() < math.inf:
                env.step()
        if self.running and not done():
            self.end("no client will ever be present again")

    def here(self, client: int) -> bool:
        return self.presence.returns(client, self.env.now) <= self.env.now

    def wait(self, clients: Sequence[int], until: float = math.inf) -> Steps:
        back = self._back(clients)
        if math.isinf(back):
            yield self.env.event()
        elif back > self.env.now:
            end = min(back, until)
            yield self.env.timeout(max(end - self.env.now, 0.0))
            while self.env.now < end:  # the sum of the clock and the difference was rounded to just before that time
                yield self.env.timeout(end - self.env.now)

    def gone(self, clients: Sequence[int]) -> bool:
        return math.isinf(self._back(clients))

    def _back(self, clients: Sequence[int]) -> float:
        """The first time when one of these clients is present."""
        return min((self.presence.returns(client, self.env.now) for client in clients), default=math.inf)

    def trip(
        self, client: int, start: Start, until: float = math.inf, download: bool = True, share: float = 1.0
    ) -> Steps:
        env = self.env
        trip = self._begin(client, start)
        leaves = self.presence.leaves(client, env.now)
        ends = min(until, leaves)
        has_model = True
        if download:
            has_model = yield from self._download(ends, client)
        if has_model:
            began = env.now
            seconds = share * self.population.training(client, trip.number)
            finished = yield from self._stay(seconds, ends)
            self.log.interval(client, "train", began, env.now)
            if finished:
                trip.trained = env.now
                yield from self._upload(trip, ends)
        if not trip.arrived:
            if trip.failures > self.network.retries:
                trip.why = f"lost: {trip.failures} failed uploads"
            elif until <= leaves:
                trip.why = "late"
            else:
                trip.why = "went away"
        self._end(trip)
        self.log.carried.add(env.now, self.up.carried)
        return trip

    def capacity(self) -> float:
        return self.up.link.rate * self.population.mean_seconds / self.learner.messages.up

    def measures(self) -> dict[str, Any]:
        return self.log.measures(self.env.now, self.up)

    def timeline(self) -> dict[str, Any]:
        return self.log.timeline(self.env.now, self.up)

    def _stay(self, seconds: float, until: float) -> Steps:
        """Wait for `seconds`, or until `until` if that is earlier. Returns whether all seconds have passed."""
        now = self.env.now
        if now + seconds > until:
            yield self.env.timeout(max(until - now, 0.0))  # rounding may have gone past it
            return False
        if seconds:
            yield self.env.timeout(seconds)
        return True

    def deliver(self, client: int) -> Steps:
        yield from self._download(math.inf)

    def _download(self, until: float, client: int | None = None) -> Steps:
        """Send a model. In a trip of a client, its time counts as time of the client."""
        began = self.env.now
        size = self.learner.messages.down
        if self.down is None:
            arrived = yield from self._stay(self.network.link.latency, until)
            if arrived:
                self.log.bytes_down += size
        else:
            arrived, sent = yield from self._send(self.down, size, until)
            self.log.bytes_down += sent
        if client is not None:
            self.log.interval(client, "download", began, self.env.now)
        return arrived

    def _upload(self, trip: Trip, until: float) -> Steps:
        """Try to upload until it arrives, the time `until` has come, or there are no retries left."""
        network = self.network
        env = self.env
        size = self.learner.messages.up
        access = self.population.access(size)
        for attempt in range(1 + network.retries):
            if attempt > 0:
                jitter = self.population.jitter(trip.client, trip.number, attempt)
                pause = math.ldexp(network.backoff * jitter, attempt - 1)
                waited = yield from self._stay(pause, until)
                if not waited:
                    break
            began = env.now
            deadline = until
            if network.timeout is not None:
                deadline = min(until, began + network.timeout)
            trip.arrived = yield from self._attempt(size, access, deadline)
            if trip.arrived:
                self.log.interval(trip.client, "upload", began, env.now)
                unhindered = access + size / self.up.link.rate + self.up.link.latency
                trip.waited = max(round(env.now - trip.trained - unhindered, 9), 0.0)
                break
            self.log.interval(trip.client, "failed", began, env.now)
            if env.now >= until or math.isclose(env.now, until, rel_tol=1e-12):  # the clock rounds
                break
            trip.failures += 1

    def _attempt(self, size: int, access: float, until: float) -> Steps:
        """Upload once, over the client's link and then the server's. Returns whether it arrived before `until`."""
        passed = yield from self._stay(access, until)
        if not passed:
            return False
        arrived, sent = yield from self._send(self.up, size, until)
        self.log.bytes_up += sent
        return arrived

    def _send(self, channel: Channel, size: int, until: float) -> Steps:
        """Send over a shared link. Returns whether all bytes arrived before `until`, and how many were sent."""
        transfer = channel.send(size)
        if transfer is None:
            return False, 0.0
        if until < math.inf:
            time_left = self.env.timeout(max(until - self.env.now, 0.0))
            time_left.callbacks.append(lambda _: channel.cancel(transfer))
        arrived = yield transfer.done
        if arrived and channel.link.latency:
            arrived = yield from self._stay(channel.link.latency, until)
        return arrived, transfer.sent


def begin(env: Environment, network: Network, learner: Learner, *, rounds: float, seed: int) -> SimulatedSite:
    """A site with its clients and its link."""
    population = Population(network.clients, learner.samples, seed)
    site = SimulatedSite(env, network, population, learner, network.link.open(env), rounds, seed)
    if network.seconds is not None:
        run_ends = env.timeout(network.seconds)
        run_ends.callbacks.append(lambda _: site.end("its simulated time was over"))
    return site


@contextmanager
def _few_collections() -> Iterator[None]:
    """Run the garbage collector less often: in a large run it would spend most of the time on objects that stay."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
