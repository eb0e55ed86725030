"""FedBuff (Nguyen et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from ...basics.errors import check, check_strength
from ..learning import AnyModel
from ..site import Site, Steps, Trip
from .base import Scheduler


@dataclass(frozen=True)
class FedBuff(Scheduler):
    """Every client trains on its own; the server steps when `size` (K) updates are in.

        w <- w + lr * (1/K) * sum of s(t - tau) * (w_i - w_tau),    s(x) = (1 + x)^(-a)

    over the K updates, each from the model w_tau that its client had started from; t - tau are the server's steps since
    then. The paper subtracts start minus end, which is the same. `a = 0` leaves staleness out.
    """

    size: int = 10
    lr: float = 1.0
    a: float = 0.5

    def __post_init__(self) -> None:
        check(self.size >= 1, "FedBuff.size", self.size, "must be at least 1")
        check_strength("FedBuff.lr", self.lr)
        check_strength("FedBuff.a", self.a)

    def run(self, site: Site) -> Steps:
        buffer: list[AnyModel] = []
        for client in range(site.size):
            site.env.process(self._client(site, client, buffer))
        yield site.over

    def _client(self, site: Site, client: int, buffer: list[AnyModel]) -> Steps:
        while site.running:
            yield from site.wait([client])
            trip = yield from site.trip(client, site.newest())
            if site.running:
                self._take(site, trip, buffer)
            yield site.env.timeout(0)  # arrivals of the same instant come first

    def _take(self, site: Site, trip: Trip, buffer: list[AnyModel]) -> None:
        w = site.model(trip)
        if w is None:
            return
        buffer.append((1.0 + site.version - trip.start.version) ** -self.a * (w - trip.start.w))
        if len(buffer) == self.size:
            site.step(site.learner.model() + self.lr / self.size * sum(buffer))
            buffer.clear()
