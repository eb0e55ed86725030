"""Synchronous rounds: the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...checks import check
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
    rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self.deadline is None or self.deadline > 0, "Synchronous.deadline", self.deadline, "must be positive")

    def run(self, site: Site) -> Steps:
        while site.running:
            asked = site.asked().tolist()
            there = [client for client in asked if site.here(client)]
            until = math.inf if self.deadline is None else site.env.now + self.deadline
            start = site.newest()
            if not there:
                yield from site.wait(asked or range(site.size))
            trips = yield from site.trips([(client, start) for client in there], until)
            if site.running:
                site.round([trip.client for trip in trips if trip.arrived])
