"""Synchronous rounds: the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...settings.limits import Positive
from ..site import Site, Steps
from .base import Scheduler


@dataclass(frozen=True)
class Synchronous(Scheduler, name="synchronous"):
    """Rounds as in FedAvg: all clients, or a sample, train from the newest model; the server waits for them.

    The experiment's `sampling` chooses the clients that are asked; those that are away are skipped. The federation
    makes the round of the uploads that arrived. Without congestion, and with clients that are always present, its
    numbers are bitwise those of the federation without a network.
    """

    deadline: Positive | None = None
    """how many seconds after its beginning a round ends at the latest; uploads that have not arrived are given up; left
    out: no deadline"""
    schedule_counts: Literal["steps"] = field(default="steps", kw_only=True)
    """which rounds have finished for a schedule of the clients (`LocalTraining.schedule`): the server's steps, which
    are the rounds"""

    def run(self, site: Site) -> Steps:
        """The rounds of a study of time. A federation makes its own rounds and calls `round` for each."""
        while site.running:
            yield from self.round(site, site.learner.asked(site.version).tolist(), self.until(site))
            if site.running:
                site.step(site.learner.model())

    def until(self, site: Site) -> float:
        """The latest end of a round that begins now, in seconds of simulated time."""
        return math.inf if self.deadline is None else site.env.now + self.deadline

    def round(self, site: Site, asked: list[int], until: float, shares: Sequence[float] = ()) -> Steps:
        """The trips of the clients that are asked and present, which end by `until`.

        Client i works for the share `shares[i]` of a training's duration; without `shares` for all of it.
        """
        there = [client for client in asked if site.here(client)]
        start = site.newest()
        if not there:
            yield from site.wait(range(site.size) if site.gone(asked) else asked, until)
        trips = (site.trip(client, start, until, share=shares[client] if shares else 1.0) for client in there)
        return (yield from site.together(trips))
