"""FedWindow: a sliding window over clients, and the rules for its size.

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
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Literal, TypeAlias

import numpy as np
from annotated_types import Interval
from simpy import Event

from ..settings.errors import SettingError, check
from ..settings.limits import Count, Positive, Unit
from ..settings.setting import Accepts, Setting, default
from ..vector.randomness import Purpose, generator
from .learning import AnyModel, Start
from .schedulers import Scheduler
from .site import Site, Steps
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
        requirement = f"must be at most the number of clients, {site.size}"
        check(self.size <= site.size, "ConstantWindow.size", self.size, requirement)
        return Control(self.size)


@dataclass(frozen=True)
class CapacityWindow(ClientWindow, name="capacity"):
    """The largest W whose uploads the link carries while one client trains: floor(R * T / b), from 1 to N.

    T is the mean duration of a training over the clients, in seconds; b the bytes of an upload; R the link's bytes per
    second.
    """

    def begin(self, site: Site) -> Control:
        capacity = site.capacity()
        if capacity is None:
            requirement = "needs a simulated network, whose rate is known: give a number, or aimd"
            raise SettingError.at("FedWindow.window", "capacity", requirement)
        # A whole number may be a little less in floating point.
        size = math.floor(capacity * (1 + 1e-9))
        return Control(min(max(size, 1), site.size))


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
        requirement = f"must be at most the number of clients, {site.size}"
        check(self.start <= site.size, "AIMDWindow.start", self.start, requirement)
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


Beginning: TypeAlias = Literal["own", "newest"]
"""From which model an entering client trains: the one that it received when it last left, or the newest one."""

Order: TypeAlias = Literal["index", "shuffled"] | tuple[int, ...]
"""In which order the clients stand on the ring: by their ids, by chance, or as a list of them says."""


@dataclass(frozen=True)
class FedWindow(Scheduler, name="fedwindow"):
    """A window of W clients moves around a ring; the global model is the mean of their newest uploads.

        w_{t+1} = (1/W) * (sum over the window without j of U_k + U_i)        i enters, j leaves (the paper's eq. 4)

    so w_{t+1} - w_t = (U_i - U_j) / W. The mean is unweighted, as in equation 4; the paper's objective weights by
    samples.
    Client j receives w_{t+1}; all others keep their models. With `start = "own"` an entering client's model is, for N
    clients and one client at a time, N - W - 1 versions old; for W = N, where the client that enters is the one that
    leaves, N - 1. `pipelined`, a client may enter again while its own upload is in the window, and its model is older,
    so `"newest"` goes better with it. The window begins with the ring's first W clients, so the first to enter is the
    next one.

    Let the models from which clients train be d versions old, and m_t be the mean update of the last W clients. Then a
    weighted mean z_t of the last models moves by exactly (docs/papers/fedwindow.md)

        z_{t+1} - z_t = 2/(2d + W + 1) * m_t

    One trip therefore moves the averaged model by 2/(2d + W + 1) of a client's update. In a synchronous round of N
    clients it is 1/N.

    The paper's algorithm has `slide = 1`, so one client trains at a time whatever W is. `pipelined = true` is our
    reading of how the window avoids congestion. A client that is away or whose upload fails is skipped, and no client
    leaves for it. A client that has trained or was skipped goes to the end of the ring.
    """

    window: Accepts[ClientWindow, int] = default(factory=ConstantWindow)
    """the rule for W, the number of clients in the window; a number is a constant W"""
    slide: Count = 1
    """how many clients enter in each step, and train at the same time, before as many leave"""
    start: Beginning = "own"
    """from which model an entering client trains: "own": the one that it received when it last left the window (w_0
    before that); "newest": the newest one, which it is sent"""
    cache: Literal["initial", "empty"] = "initial"
    """what the uploads of the first W clients are at first: "initial": w_0; "empty": they have none, and w is the mean
    of the uploads in the window"""
    pipelined: bool = False
    """whether W clients train at the same time: the next one enters when an upload has arrived, and the window moves by
    one"""
    order: Accepts[Order, Sequence[int]] = default("index")
    """the ring's order: "index": that of the clients' ids; "shuffled": one that is drawn once from the run's seed; or a
    list of all client ids"""

    def __post_init__(self) -> None:
        if self.pipelined:
            check(self.slide == 1, "FedWindow.slide", self.slide, "must be 1 where it is pipelined")
        if not isinstance(self.order, str):
            object.__setattr__(self, "order", _client_ids(self.order))

    def run(self, site: Site) -> Steps:
        ring = _Ring(self, site)
        size = ring.control.size
        check(self.slide <= size, "FedWindow.slide", self.slide, f"must be at most the window's size, {size}")
        if isinstance(self.window, AIMDWindow):
            requirement = (
                "must be true with the window aimd, since its size must be the number of clients that work at a time"
            )
            check(self.pipelined, "FedWindow.pipelined", self.pipelined, requirement)
        return self._run(site, ring)

    def _run(self, site: Site, ring: _Ring) -> Steps:
        if self.pipelined:
            ring.fill()
            yield site.over
        while site.running:
            yield from ring.slide()


def _client_ids(order: object) -> tuple[int, ...]:
    """The ids in a list or an array. Raises `SettingError` for what has no order, and for what are no different ids."""
    requirement = "must be 'index', 'shuffled' or a list of all client ids"
    ids = np.asarray(order)
    check(ids.ndim == 1 and ids.dtype.kind in "iu", "FedWindow.order", order, requirement)
    check(len(set(ids.tolist())) == len(ids), "FedWindow.order", order, "must name each client once")
    return tuple(ids.tolist())


class _Ring:
    """The ring during a run: the clients that wait, in order, the window's uploads, and each client's last model."""

    def __init__(self, rule: FedWindow, site: Site) -> None:
        self.rule = rule
        self.site = site
        self.control = rule.window.begin(site)
        self._check_size()
        size = self.control.size
        # The models that clients have received when they left the window, and the downloads that are under way.
        self._first = Start(site.learner.newest(), 0)
        self._received: dict[int, Start] = {}
        self._downloads: dict[int, Event] = {}
        # The uploads in the window, the oldest first, and their sum.
        w = None
        self._sum: AnyModel = 0.0
        if rule.cache == "initial":
            w = site.learner.model()
            self._sum = size * w
        order = self._order()
        self._cache: deque[tuple[int, AnyModel | None]] = deque((client, w) for client in order[:size])
        # The clients that wait: the first W ones stand at the end, since they are in the window.
        self._free = deque(order)
        self._free.rotate(-size)
        self._working = 0
        self._waits = False
        self._came_back = site.env.event()
        site.log.window.add(site.env.now, size)

    def _check_size(self) -> None:
        """Raise `SettingError` unless the window has a size that it can have: a rule may be of the user's own."""
        size = self.control.size
        n = self.site.size
        is_whole = isinstance(size, Integral) and not isinstance(size, bool)
        place = f"{type(self.rule.window).__name__}: the window's size"
        check(is_whole and 1 <= size <= n, place, size, f"must be a whole number of clients, from 1 to {n}")

    def _order(self) -> list[int]:
        """The clients in the ring's order. Raises `SettingError` for a list that is not of all clients."""
        order = self.rule.order
        n = self.site.size
        if order == "index":
            return list(range(n))
        if order == "shuffled":
            shuffled: list[int] = generator(self.site.seed, Purpose.RING).permutation(n).tolist()
            return shuffled
        requirement = f"must name each of the {n} clients once, from 0 to {n - 1}"
        check(sorted(order) == list(range(n)), "FedWindow.order", order, requirement)
        return list(order)

    def slide(self) -> Steps:
        """One step: `slide` clients enter, and one leaves for each upload that arrived."""
        entered: list[int] = []
        for _ in range(self.rule.slide):
            if entered and self.site.gone(self._free):
                break  # nobody else will ever come
            entered.append((yield from self._enter()))
        # The trips have no name here: this process would refer to their models, which would be saved, while it waits.
        self._take((yield from self.site.together(map(self._trip, entered))))

    def fill(self) -> None:
        """Let as many clients start to work as the window holds and are present.

        If nobody is present, a process begins nevertheless, unless one waits for clients already.
        """
        while self._working < self.control.size:
            if self._waits and not self._anybody_present():
                return
            self._working += 1
            self.site.env.process(self._work())

    def _anybody_present(self) -> bool:
        """Whether a client that waits on the ring is present."""
        return any(map(self.site.here, self._free))

    def _work(self) -> Steps:
        """One place in the window: one client after another works in it, until the window becomes too small.

        If nobody is present the place is free. One process waits for all: `fill` makes the others again.
        """
        while self.site.running and self._working <= self.control.size:
            client = self._next()
            if client is None:
                if self._waits:
                    break
                self._working -= 1
                self._waits = True
                yield from self._wait_for_anybody()
                self._working += 1
                self._waits = False
                self.fill()
                continue
            self._take([(yield from self._trip(client))])
            self.fill()
            yield self.site.env.timeout(0)  # first count all uploads that arrive at this instant
        self._working -= 1

    def _wait_for_anybody(self) -> Steps:
        """Wait until a client on the ring is present, one of those that come back to it meanwhile, too."""
        env = self.site.env
        while self.site.running and not self._anybody_present():
            self._came_back = env.event()
            present = env.process(self.site.wait(list(self._free)))
            yield env.any_of([present, self._came_back])

    def _enter(self) -> Steps:
        """The next client on the ring that is present; waits for one if none is."""
        client = self._next()
        while client is None:
            yield from self.site.wait(self._free)
            client = self._next()
        return client

    def _next(self) -> int | None:
        """The next client on the ring that is present, if there is one."""
        for _ in range(len(self._free)):
            client = self._free.popleft()
            if self.site.here(client):
                return client
            self._free.append(client)
        return None

    def _trip(self, client: int) -> Steps:
        """A client's trip, once it has the model that it was sent when it left."""
        start = self._start_of(client)
        download = self._downloads.pop(client, None)
        if download is not None and not download.processed:
            yield download
        return (yield from self.site.trip(client, start, download=self._sends_at_entry))

    @property
    def _sends_at_entry(self) -> bool:
        """Whether a client is sent a model when it enters; otherwise it was sent one when it left."""
        return self.rule.start == "newest"

    def _start_of(self, client: int) -> Start:
        """The model from which an entering client trains."""
        if self._sends_at_entry:
            return self.site.newest()
        return self._received.get(client, self._first)

    def _take(self, trips: list[Trip]) -> None:
        """Move the window by the uploads that arrived, and send the new model to the clients that leave."""
        # 1. The clients go back to the ring, and the window may change its size.
        self._free.extend(trip.client for trip in trips)
        if self._waits and not self._came_back.triggered:
            self._came_back.succeed()
        if not self.site.running:
            return
        for trip in trips:
            self.control.heard(trip)
            self._check_size()
        self.site.log.window.add(self.site.env.now, self.control.size)

        # 2. Their uploads enter the window, as far as they can be used. All are trained first: the order counts.
        entering: list[tuple[int, AnyModel]] = []
        for trip in trips:
            w = self.site.model(trip)
            if w is not None:
                entering.append((trip.client, w))
        if not entering:
            return
        for client, w in entering:
            self._cache.append((client, w))
            self._sum = self._sum + w

        # 3. The oldest ones leave, until W are left, and their mean is the new model.
        leaving: list[int] = []
        while len(self._cache) > self.control.size:
            client, w = self._cache.popleft()
            if w is not None:
                self._sum = self._sum - w
            leaving.append(client)
        uploads = sum(w is not None for _, w in self._cache)
        self.site.step(self._sum / uploads)

        # 4. Who leaves receives it, unless clients are sent the newest model when they enter.
        if not self._sends_at_entry:
            newest = self.site.newest()
            for client in leaving:
                self._received[client] = newest
                self._downloads[client] = self.site.env.process(self.site.deliver(client))
