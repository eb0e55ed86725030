"""FedBuff (Nguyen et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...settings.limits import Count, Rate, Strength
from ..learning import AnyModel
from ..site import Site, Steps
from ..trip import Trip
from .base import Scheduler, independent


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
        return independent(site, partial(self._take, site, list[AnyModel](), list[AnyModel]()))

    def _take(self, site: Site, updates: list[AnyModel], statistics: list[AnyModel], trip: Trip, w: AnyModel) -> None:
        updates.append((1.0 + site.version - trip.start.version) ** -self.a * (w - trip.start.w))
        statistics.append(site.learner.statistics(w))
        if len(updates) == self.size:
            moved = site.learner.model() + self.lr / self.size * sum(updates)
            site.step(site.learner.with_statistics(moved, sum(statistics) / self.size))
            updates.clear()
            statistics.clear()
