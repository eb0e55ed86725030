"""FedWindow: a window that slides over clients on a ring."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from ...basics.errors import check
from ..client_windows import AIMDWindow, ClientWindow, ConstantWindow
from ..learning import AnyModel
from ..site import Site, Start, Steps, Trip
from .base import Scheduler


@dataclass(frozen=True)
class FedWindow(Scheduler):
    """A window of W clients slides over a ring; the global model is the mean of their newest uploads.

        w_{t+1} = (1/W) * (sum over the window without j of U_k + U_i)        i enters, j leaves (the paper's eq. 4)

    so that w_{t+1} - w_t = (U_i - U_j) / W. Uniform, as in the paper's equation 4; its objective weighs by samples.
    Client j gets w_{t+1}; all others keep what they have. With `start = "own"` the entering client trains from the
    model that it got when it last left (w_0 before that): for N clients that is N - W - 1 versions old. With
    `"newest"` it is sent the newest model. The window begins with the ring's first W clients, all of upload w_0
    (`cache = "initial"`), or `"empty"`: then w is the mean of those uploads that there are.

    With models that are d versions old when clients get to work on them, and m_t the mean of the last W clients' own
    updates, a weighted mean z_t of the last models moves by exactly 2/(2d + W + 1) m_t (docs/network.md): so much of an
    update is a trip worth, and 1/N in a synchronous round of N.

    `slide` clients enter, train side by side, and leave at a time. The paper's algorithm slides by 1, so that one
    client trains at a time whatever W is. `pipelined = true` is our reading of what it is to do against congestion: W
    clients are at work at a time, the next one enters when an upload has arrived, and that moves the window by one. A
    client that is away, or whose upload fails, is passed over, and nobody leaves for it; who has been at work or was
    passed over is the ring's last.
    """

    window: ClientWindow = field(default_factory=ConstantWindow)
    slide: int = 1
    start: Literal["own", "newest"] = "own"
    cache: Literal["initial", "empty"] = "initial"
    pipelined: bool = False

    def __post_init__(self) -> None:
        check(self.slide >= 1, "FedWindow.slide", self.slide, "must be at least 1")
        check(not self.pipelined or self.slide == 1, "FedWindow.slide", self.slide, "must be 1 where it is pipelined")

    def run(self, site: Site) -> Steps:
        ring = _Ring(self, site)
        right = f"must be at most the window's size, {ring.control.size}"
        check(self.slide <= ring.control.size, "FedWindow.slide", self.slide, right)
        right = "must be true for the window aimd: else the window's size is not how many work at a time"
        check(self.pipelined or not isinstance(self.window, AIMDWindow), "FedWindow.pipelined", self.pipelined, right)
        return self._run(site, ring)

    def _run(self, site: Site, ring: _Ring) -> Steps:
        if self.pipelined:
            ring.fill()
            yield site.over
        while site.running:
            yield from ring.slide()


class _Ring:
    """The ring at work: who is not at work, the next one first, the window's uploads, and what each client got last."""

    def __init__(self, rule: FedWindow, site: Site) -> None:
        self.rule, self.site, self.control = rule, site, rule.window.begin(site)
        self._first = Start(site.learner.newest(), 0)
        self._own: dict[int, Start] = {}
        size = self.control.size if rule.cache == "initial" else 0
        w = site.learner.model()
        self._cache: deque[tuple[int, AnyModel]] = deque((client, w) for client in range(size))
        self._sum: AnyModel = size * w
        self._free, self._working = deque(range(site.size)), 0
        self._free.rotate(-size)
        site.log.window.add(site.env.now, self.control.size)

    def slide(self) -> Steps:
        """One round: `slide` clients enter, and as many leave as have brought a model."""
        entered = []
        for _ in range(self.rule.slide):
            entered.append((yield from self._enter()))
        sent = [(client, self._sent(client)) for client in entered]
        trips = yield from self.site.trips(sent, download=self._downloads)
        self._free.extend(entered)
        if self.site.running:
            self._take(trips)

    def fill(self) -> None:
        """Let as many clients work as the window holds."""
        while self._working < self.control.size:
            self._working += 1
            self.site.env.process(self._work())

    def _work(self) -> Steps:
        """One place in the window: client after client, until the window has become too small for it."""
        while self.site.running and self._working <= self.control.size:
            client = yield from self._enter()
            trip = yield from self.site.trip(client, self._sent(client), download=self._downloads)
            self._free.append(client)
            if self.site.running:
                self._take([trip])
                self.fill()
            yield self.site.env.timeout(0)  # arrivals of the same instant come first
        self._working -= 1

    def _enter(self) -> Steps:
        """The next client on the ring that is there; waits for one if need be."""
        while True:
            for _ in range(len(self._free)):
                client = self._free.popleft()
                if self.site.here(client):
                    return client
                self._free.append(client)
            yield from self.site.wait(self._free)

    @property
    def _downloads(self) -> bool:
        """Whether a client is sent a model when it enters; else it was when it left."""
        return self.rule.start == "newest"

    def _sent(self, client: int) -> Start:
        """The model from which an entering client trains."""
        return self.site.newest() if self._downloads else self._own.get(client, self._first)

    def _take(self, trips: list[Trip]) -> None:
        """Move the window by what has come, and send the new model to those that leave."""
        for trip in trips:
            self.control.heard(trip)
        self.site.log.window.add(self.site.env.now, self.control.size)
        came = [(trip.client, w) for trip in trips if (w := self.site.model(trip)) is not None]
        if not came:
            return
        for client, w in came:
            self._cache.append((client, w))
            self._sum = self._sum + w
        gone = []
        while len(self._cache) > self.control.size:
            client, w = self._cache.popleft()
            self._sum = self._sum - w
            gone.append(client)
        if not self._downloads:
            self.site.count_downloads(len(gone))  # before the step, whose measures they are among
        self.site.step(self._sum / len(self._cache))
        if not self._downloads:
            self._own |= dict.fromkeys(gone, self.site.newest())
