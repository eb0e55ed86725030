"""The network between a server and its clients: the table `[network]` of an experiment file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Interval
from simpy import Environment

from ..engines import Training
from ..engines.clients import Clients
from ..settings.errors import check
from ..settings.fingerprint import text
from ..settings.limits import CountFromZero, Positive, Strength, Unit
from ..settings.setting import Setting
from ..vector.arrays import Ints, Vectors
from .clients import SimulatedClients
from .learning import Learning
from .links import Link
from .messages import lengths
from .schedulers import Scheduler
from .simulated import SimulatedSite, begin


@dataclass(frozen=True)
class Network(Setting):
    """A server behind a shared link, and its clients.

    A message is as long as the vectors that the method sends: for `fedavg` one model, for `scaffold` two. An attempt to
    upload fails if it takes longer than `timeout`, and if the link is full. Before retry a = 1, 2, ... the client waits
    `backoff * 2**(a - 1)` seconds, times a random number between 1/2 and 3/2. After the last failure the training is
    lost.
    """

    link: Link = field(default_factory=lambda: Link(1e6))
    """the link to the server, which all uploads share"""
    down: Link | None = None
    """the link that all downloads share; left out: a download takes `link.latency` only"""
    clients: SimulatedClients = field(default_factory=SimulatedClients)
    """how fast clients are, their links, and when they are present"""
    bytes: Annotated[int, Interval(gt=0)] | None = None
    """how many bytes a model counts as; all messages grow or shrink with it; left out: as many as it has"""
    timeout: Annotated[Positive, Unit("seconds")] | None = None
    """after how many seconds an attempt to upload fails; its bytes sent so far are lost; left out: no limit"""
    retries: CountFromZero = 0
    """how often at most a client tries again to upload"""
    backoff: Strength = 1.0
    """how many seconds a client waits before its first retry, apart from a random factor"""
    learning: bool = True
    """whether models are trained; false: there are no models, only events, for studies of time"""
    gradients: bool = False
    """whether each evaluation also measures the length of the training loss's gradient at the global model; this takes
    one pass over all clients' samples"""
    seconds: Positive | None = None
    """after how many seconds of simulated time a run ends, if it has not made its rounds before; left out: no limit"""

    def __post_init__(self) -> None:
        if self.down is not None:
            requirement = "must be left out: a download that finds no room is not tried again"
            check(self.down.limit is None, "Network.down.limit", self.down.limit, requirement)
        if not self.learning:
            check(not self.gradients, "Network.gradients", True, "must be false with learning = false")
            requirement = "must be given with learning = false"
            check(self.bytes is not None, "Network.bytes", self.bytes, requirement)
            check(self.clients.count > 0, "Network.clients.count", self.clients.count, requirement)

    def fits(self, clients: Clients, scheduler: Scheduler) -> None:
        """Raise `SettingError` for a network without learning, another number of clients, or gradients of samples that
        are not on this machine."""
        n = len(clients.sizes)
        check(self.learning, "network.learning", self.learning, "must be true: these clients train")
        requirement = f"the partition makes {n}: leave it out"
        check(self.clients.count in (0, n), "network.clients.count", self.clients.count, requirement)
        if self.gradients:
            requirement = "the clients' samples are not here: leave it out"
            check(clients.data is not None, "network.gradients", self.gradients, requirement)

    def past(self, scheduler: Scheduler, training: Training, sizes: Ints) -> dict[str, str]:
        """What events depend on, as texts under names that begin with `past.`; `sizes` `[N]`: the clients' samples.

        A run's past can be replayed only where all of it is the same.
        """
        events = {
            "network": self,
            "scheduler": scheduler,
            "seed": training.seed,
            "samples in a training": training.samples(sizes),
            "bytes of a message": lengths(training, self.bytes),
        }
        return {f"past.{name}": text(value) for name, value in events.items()}

    def begin(self, learning: Learning, saved: Vectors) -> SimulatedSite:
        """A federation's site at time 0. Its events depend on the seed alone."""
        return begin(Environment(), self, learning, rounds=math.inf, seed=learning.federation.seed)
