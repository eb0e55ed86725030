"""Synchronous rounds: the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...basics.errors import check
from ..site import Site, Steps
from .base import Scheduler


@dataclass(frozen=True)
class Synchronous(Scheduler):
    """FedAvg's rounds: all or a sample train from the newest model; the server waits for them, or until a deadline.

    The experiment's `sampling` says who is asked; those who are away are passed over. `deadline` seconds after its
    beginning a round is over, and what has not arrived is given up (None: the server waits for all). The federation
    makes the round of those that have arrived: without congestion, and with clients that are always there, its numbers
    are those of the federation without a network, bit for bit.
    """

    deadline: float | None = None

    def __post_init__(self) -> None:
        check(self.deadline is None or self.deadline > 0, "Synchronous.deadline", self.deadline, "must be positive")

    def run(self, site: Site) -> Steps:
        """The rounds of a study of time; a federation makes its own, each by way of `round`."""
        while site.running:
            yield from self.round(site, site.learner.asked(site.version).tolist(), self.until(site))
            if site.running:
                site.step(site.learner.model())

    def until(self, site: Site) -> float:
        """When a round that begins now is over at the latest."""
        return math.inf if self.deadline is None else site.env.now + self.deadline

    def round(self, site: Site, asked: list[int], until: float, shares: Sequence[float] = ()) -> Steps:
        """The trips of those who are asked and there, over by `until`; returns them (`shares`: see `Site.trips`)."""
        there = [client for client in asked if site.here(client)]
        start = site.newest()
        if not there:
            yield from site.wait(asked or range(site.size))
        trips = yield from site.trips([(client, start) for client in there], until, shares=shares)
        return trips
