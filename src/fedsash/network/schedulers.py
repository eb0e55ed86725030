"""Schedulers: when clients begin a trip, and what the server does with an upload."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Literal

from ..settings.limits import Count, Factor, Positive, Rate, Strength
from ..settings.setting import Setting
from .learning import AnyModel
from .site import Site, Steps
from .trip import Trip


@dataclass(frozen=True)
class Scheduler(Setting, ABC):
    """A rule for when clients train, and how the server uses their uploads.

    A scheduler holds settings only; the process that `run` returns holds what a run remembers. It calculates with
    models by + - * / only, with numbers or other models, so that a run can be saved (see `network.vectors`). The server
    makes at most one step in each event.
    """

    _: KW_ONLY
    schedule_counts: Literal["trainings", "steps"] = "trainings"
    """which rounds have finished for a schedule of the clients (`LocalTraining.schedule`): "trainings" are each
    client's own before this one, also those that were lost on the way; "steps" are those that the server had made when
    it sent the client the model from which it trains"""

    @abstractmethod
    def run(self, site: Site) -> Steps:
        """The server's process, which ends when the site's run is over.

        Raises `SettingError` if the scheduler does not fit the clients.
        """


def independent(site: Site, take: Callable[[Trip, AnyModel], None]) -> Steps:
    """Clients train independently, each from the newest model; `take` is given every upload that can be used."""
    for client in range(site.size):
        site.env.process(_train_repeatedly(site, client, take))
    yield site.over


def _train_repeatedly(site: Site, client: int, take: Callable[[Trip, AnyModel], None]) -> Steps:
    """The trips of one client, one after another, until the run is over."""
    while site.running:
        yield from site.wait([client])
        # The trip has no name here: this process would refer to it, and its models would be saved, until the next one.
        _take_upload(site, (yield from site.trip(client, site.newest())), take)
        yield site.env.timeout(0)  # first count all uploads that arrive at this instant


def _take_upload(site: Site, trip: Trip, take: Callable[[Trip, AnyModel], None]) -> None:
    """Give the upload of a trip to `take`, if there is one that can be used and the run is not over."""
    if not site.running:
        return
    w = site.model(trip)
    if w is not None:
        take(trip, w)


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
            clients = site.learner.asked(site.version).tolist()
            yield from self.round(site, clients, self.until(site))
            if site.running:
                site.step(site.learner.model())

    def until(self, site: Site) -> float:
        """The latest end of a round that begins now, in seconds of simulated time."""
        if self.deadline is None:
            return math.inf
        return site.env.now + self.deadline

    def round(self, site: Site, clients: list[int], until: float, shares: Sequence[float] = ()) -> Steps:
        """The trips of those of the chosen `clients` that are present, which end by `until`.

        If none is present, the server waits until one is, or any client at all if none of them will ever be. Client i
        works for the share `shares[i]` of a training's duration; without `shares` for all of it.
        """
        present = [client for client in clients if site.here(client)]
        start = site.newest()
        if not present:
            awaited: Sequence[int] = clients
            if site.gone(clients):
                awaited = range(site.size)
            yield from site.wait(awaited, until)
        trips: list[Steps] = []
        for client in present:
            share = 1.0
            if shares:
                share = shares[client]
            trips.append(site.trip(client, start, until, share=share))
        return (yield from site.together(trips))


@dataclass(frozen=True)
class FedAsync(Scheduler, name="fedasync"):
    """Clients train independently; the server mixes in each model when it arrives.

        w <- (1 - a_t) * w + a_t * w_new,    a_t = alpha * s(t - tau)

    tau is the version of the model that the client started from; staleness x = t - tau is 0 for the newest model. s
    depends on `weight`: "constant": 1; "polynomial": (x + 1)^(-a); "hinge": 1 if x <= b, else 1 / (a * (x - b) + 1).
    The client is sent the new model at once. For the paper's local term (rho/2) * ||w' - w_tau||^2 use the method
    fedprox.
    """

    alpha: Factor = 0.6
    """the share of a fresh model in the mixture"""
    weight: Literal["constant", "polynomial", "hinge"] = "constant"
    """how s depends on staleness: "constant": not at all; "polynomial": it falls from 1 as a power; "hinge": it is 1 up
    to `b`, and falls then"""
    a: Strength = 0.5
    """how fast the share falls with staleness"""
    b: Strength = 4.0
    """the staleness up to which "hinge" takes the whole share"""

    def s(self, x: int) -> float:
        """The weight of an update of staleness x."""
        if self.weight == "polynomial":
            return float((x + 1.0) ** -self.a)
        if self.weight == "hinge" and x > self.b:
            return 1 / (self.a * (x - self.b) + 1)
        return 1.0

    def run(self, site: Site) -> Steps:
        return independent(site, partial(self._take, site))

    def _take(self, site: Site, trip: Trip, w: AnyModel) -> None:
        a = self.alpha * self.s(site.version - trip.start.version)
        site.step((1 - a) * site.learner.model() + a * w)


@dataclass(frozen=True)
class FedBuff(Scheduler, name="fedbuff"):
    """Clients train independently; the server makes a step when `size` (K) updates have arrived.

        w <- w + lr * (1/K) * sum of s(t - tau) * (w_i - w_tau),    s(x) = (1 + x)^(-a)

    The sum is over the K updates. w_tau is the model that the client started from, and t - tau the number of steps that
    the server has made since then. The paper subtracts w_tau - w_i, which is the same. The running statistics
    of BatchNorm become the mean of those of the K models, whatever `lr` and `a` are: differences from several old
    models would add up to variances below 0.
    """

    size: Count = 10
    """K, the number of updates with which the server makes a step"""
    lr: Rate = 1.0
    """the server's learning rate"""
    a: Strength = 0.5
    """how fast an update's weight falls with staleness; 0 ignores it"""

    def run(self, site: Site) -> Steps:
        updates: list[AnyModel] = []
        statistics: list[AnyModel] = []
        return independent(site, partial(self._take, site, updates, statistics))

    def _take(self, site: Site, updates: list[AnyModel], statistics: list[AnyModel], trip: Trip, w: AnyModel) -> None:
        """Add an upload to those since the last step, and make a step if they are K."""
        staleness = site.version - trip.start.version
        weight = (1.0 + staleness) ** -self.a
        updates.append(weight * (w - trip.start.w))
        statistics.append(site.learner.statistics(w))
        if len(updates) == self.size:
            moved = site.learner.model() + self.lr / self.size * sum(updates)
            site.step(site.learner.with_statistics(moved, sum(statistics) / self.size))
            updates.clear()
            statistics.clear()


SCHEDULERS = Scheduler.by_name
