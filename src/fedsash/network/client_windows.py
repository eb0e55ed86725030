"""How many clients are in FedWindow's window: fixed, from the network, or adaptive. The last two are ours.

FedWindow says that W follows from the network's conditions and the clients' data and compute, and gives no rule.

**Capacity.** W clients are at work. Each trains for T seconds and uploads b bytes over a link of R bytes a second. In
the time that one trains, the uploads of all have to go through: W * b/R <= T, so W = floor(R * T / b). W clients ask
for at most W / (T + b/R) uploads a second, so the link is in use for a share of at most T / (T + b/R) < 1: it is nearly
filled, and its queue does not grow.

**AIMD.** By Little's law (closed system) W = X * (T + D), with D the delay of an upload and X the uploads a second. A
link that is never idle has X = R/b, so D = W * b/R - T, and a target d for the delay is met up to

    W_d = (R / b) * (T + d),

which nobody need know: W grows by `increase` for each W uploads that arrive in time and shrinks to `decrease` times
itself when one fails or takes longer than d, as TCP's congestion avoidance does (Jacobson 1988); for signals of
trips that began before its last cut, W is not cut again. So W saws between decrease * W_d and W_d, its mean is near
(1 + decrease) / 2 * W_d, and the link stays in use throughout if decrease * W_d >= (R / b) * (T + b/R), that is if
d >= T * (1/decrease - 1) + b/R / decrease. That additive increase and multiplicative decrease lead all who share a
link to equal shares was shown by Chiu and Jain (1989).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from ..basics.errors import check
from ..basics.typed import typed
from .site import Site, Trip


class Control:
    """A window at work: its `size`, from 1 to N, which `heard` may change."""

    def __init__(self, size: int) -> None:
        self.size = size

    def heard(self, trip: Trip) -> None:
        """A trip is over."""


@dataclass(frozen=True)
@typed
class ClientWindow(ABC):
    """A rule for the window's size W."""

    @classmethod
    def of(cls, size: int) -> ClientWindow:
        """What `window = 4` stands for."""
        return ConstantWindow(size)

    @abstractmethod
    def begin(self, site: Site) -> Control:
        """The window at the beginning of a run; `ValueError` if it does not fit the clients."""


@dataclass(frozen=True)
class ConstantWindow(ClientWindow):
    """W is `size`."""

    size: int = 3

    def __post_init__(self) -> None:
        check(self.size >= 1, "ConstantWindow.size", self.size, "must be at least 1")

    def begin(self, site: Site) -> Control:
        check(
            self.size <= site.size,
            "ConstantWindow.size",
            self.size,
            f"must be at most the number of clients, {site.size}",
        )
        return Control(self.size)


@dataclass(frozen=True)
class CapacityWindow(ClientWindow):
    """The largest W whose uploads fit the link in the time that training takes: floor(R * T / b), T the clients' mean.

    It is at least 1 and at most N.
    """

    def begin(self, site: Site) -> Control:
        fitting = site.up.link.rate * site.population.mean_seconds / site.learner.bytes
        return Control(min(max(math.floor(fitting), 1), site.size))


@dataclass(frozen=True)
class AIMDWindow(ClientWindow):
    """Additive increase, multiplicative decrease: from `start`, W grows by `increase` for each W uploads in time.

    When an upload fails or its delay exceeds `delay` seconds (None: no target), W becomes `decrease * W`. It stays
    between 1 and N.
    """

    start: int = 1
    increase: float = 1.0
    decrease: float = 0.5
    delay: float | None = None

    def __post_init__(self) -> None:
        check(self.start >= 1, "AIMDWindow.start", self.start, "must be at least 1")
        check(self.increase > 0, "AIMDWindow.increase", self.increase, "must be positive")
        check(0 < self.decrease < 1, "AIMDWindow.decrease", self.decrease, "must be above 0 and below 1")
        check(self.delay is None or self.delay > 0, "AIMDWindow.delay", self.delay, "must be positive, seconds")

    def begin(self, site: Site) -> Control:
        check(
            self.start <= site.size,
            "AIMDWindow.start",
            self.start,
            f"must be at most the number of clients, {site.size}",
        )
        return _Adaptive(self, site)


class _Adaptive(Control):
    """The sawtooth."""

    def __init__(self, rule: AIMDWindow, site: Site) -> None:
        super().__init__(rule.start)
        self._rule, self._site = rule, site
        self._w, self._cut = float(rule.start), -math.inf

    def heard(self, trip: Trip) -> None:
        rule = self._rule
        late = rule.delay is not None and trip.arrived and trip.delay > rule.delay
        if trip.failures or late:
            if trip.began > self._cut:
                self._w, self._cut = max(self._w * rule.decrease, 1.0), self._site.env.now
        elif trip.arrived:
            self._w = min(self._w + rule.increase / self._w, float(self._site.size))
        self.size = int(self._w)


CLIENT_WINDOWS: dict[str, type[ClientWindow]] = {
    "fixed": ConstantWindow,
    "capacity": CapacityWindow,
    "aimd": AIMDWindow,
}
