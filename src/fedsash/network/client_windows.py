"""Rules for the number of clients in FedWindow's window: fixed, by the network's capacity, or adaptive.

The paper says that W depends on the network, the clients' data and their compute, but gives no rule. The last two rules
are ours. T is the duration of a training in seconds, b the bytes of an upload, R the link's rate in bytes per second.

**Capacity.** W clients are at work. While one of them trains, the link must carry the uploads of all W:

    W * b/R <= T,    so    W = floor(R * T / b).

The W clients ask for at most W / (T + b/R) uploads per second. So the link is busy for at most a share T / (T + b/R) of
the time, which is below 1: it is nearly full, and its queue does not grow.

**AIMD.** Let D be the delay of an upload and X the number of uploads per second. By Little's law for a closed system
W = X * (T + D). A link that is never idle has X = R/b, so D = W * b/R - T. The delay is at most d as long as

    W <= W_d = (R / b) * (T + d).

The rule does not need to know W_d. W grows by `increase` after every W uploads that arrive in time. When an upload
fails or takes longer than d, W is multiplied by `decrease`, as in TCP's congestion avoidance (Jacobson 1988). After a
cut, trips that began before it cannot cut W again. So W oscillates between decrease * W_d and W_d, with a mean near
(1 + decrease) / 2 * W_d. The link is always in use if decrease * W_d >= (R / b) * (T + b/R), that is, if
d >= T * (1/decrease - 1) + b/R / decrease. Chiu and Jain (1989) show that additive increase with multiplicative
decrease leads to equal shares of a link.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from ..settings.errors import check
from ..settings.limits import Count, Positive, Unit
from ..settings.setting import Setting
from .site import Site
from .trip import Trip


class Control:
    """A window during a run. Its `size` is from 1 to N, and `heard` may change it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def heard(self, trip: Trip) -> None:
        """Take note of a trip that is over."""


@dataclass(frozen=True)
class ClientWindow(Setting, ABC):
    """A rule for the window's size W."""

    @classmethod
    def of(cls, size: int) -> ClientWindow:
        """The rule for the short form `window = 4`."""
        return ConstantWindow(size)

    @abstractmethod
    def begin(self, site: Site) -> Control:
        """The window at the beginning of a run. Raises `SettingError` if it is larger than the number of clients."""


@dataclass(frozen=True)
class ConstantWindow(ClientWindow, name="fixed"):
    """A constant number of clients, `size`."""

    size: Count = 3
    """W, the number of clients in the window"""

    def begin(self, site: Site) -> Control:
        check(
            self.size <= site.size,
            "ConstantWindow.size",
            self.size,
            f"must be at most the number of clients, {site.size}",
        )
        return Control(self.size)


@dataclass(frozen=True)
class CapacityWindow(ClientWindow, name="capacity"):
    """The largest W whose uploads the link carries while one client trains: floor(R * T / b), from 1 to N.

    T is the mean duration of a training over the clients, in seconds; b the bytes of an upload; R the link's bytes per
    second.
    """

    def begin(self, site: Site) -> Control:
        fitting = site.capacity()
        right = "needs a simulated network, whose rate is known: give a number, or aimd"
        check(fitting is not None, "FedWindow.window", "capacity", right)
        assert fitting is not None
        # A whole number may be a little less in floating point.
        return Control(min(max(math.floor(fitting * (1 + 1e-9)), 1), site.size))


@dataclass(frozen=True)
class AIMDWindow(ClientWindow, name="aimd"):
    """Additive increase, multiplicative decrease: W = `start` grows by `increase` after W uploads in time.

    It is multiplied by `decrease` when an upload fails, or is late by `delay`. W stays between 1 and N.
    """

    start: Count = 1
    """W at the beginning"""
    increase: Positive = 1.0
    """by how much W grows after every W uploads in time"""
    decrease: Annotated[float, Interval(gt=0, lt=1)] = 0.5
    """what W is multiplied by when an upload fails or is late"""
    delay: Annotated[Positive, Unit("seconds")] | None = None
    """after how many seconds an upload is late; left out: it never is"""

    def begin(self, site: Site) -> Control:
        check(
            self.start <= site.size,
            "AIMDWindow.start",
            self.start,
            f"must be at most the number of clients, {site.size}",
        )
        return _Adaptive(self, site)


class _Adaptive(Control):
    """The window of `AIMDWindow` during a run."""

    def __init__(self, rule: AIMDWindow, site: Site) -> None:
        super().__init__(rule.start)
        self._rule = rule
        self._site = site
        self._w = float(rule.start)
        self._cut = -math.inf

    def heard(self, trip: Trip) -> None:
        rule = self._rule
        late = rule.delay is not None and trip.arrived and trip.delay > rule.delay
        if trip.failures or late:
            if trip.began >= self._cut:
                self._w = max(self._w * rule.decrease, 1.0)
                self._cut = self._site.env.now
        elif trip.arrived:
            self._w = min(self._w + rule.increase / self._w, float(self._site.size))
        self.size = int(self._w)


CLIENT_WINDOWS = ClientWindow.by_name
