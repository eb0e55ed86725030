"""FedAsync (Xie et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from ...settings.limits import Factor, Strength
from ..learning import AnyModel
from ..site import Site, Steps
from ..trip import Trip
from .base import Scheduler, independent


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
        return 1.0 if self.weight == "constant" or x <= self.b else 1 / (self.a * (x - self.b) + 1)

    def run(self, site: Site) -> Steps:
        return independent(site, partial(self._take, site))

    def _take(self, site: Site, trip: Trip, w: AnyModel) -> None:
        a = self.alpha * self.s(site.version - trip.start.version)
        site.step((1 - a) * site.learner.model() + a * w)
