"""Synchronous rounds on a network: an executor that wraps another one and simulates who answers in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from simpy import Environment
from torch import Tensor

from ..client.messages import SCORES, Answer, Answers, Ended, Executor, Missing, PartialSum, Reply, Request
from ..data.federated import FederatedData, Problem
from ..engines import Engine, Training
from ..engines.clients import Clients
from ..evaluation import Evaluation
from ..settings.errors import RunError
from ..settings.setting import Setting
from ..vector.arrays import Ints, Vectors
from .chronicle import NetworkChronicle
from .learning import Timing, gradient_norm
from .messages import lengths
from .schedulers import Synchronous
from .settings import Network
from .simulated import SimulatedSite, begin
from .trip import Trip

INNER = "inner/"


@dataclass(frozen=True, eq=False)
class OnNetwork(Setting):
    """Other `clients` behind a simulated network. Clients whose upload arrives answer, the others are missing.

    `Federation(model, OnNetwork(clients, network))` is run and resumed like any federation. Without congestion, and
    with clients that are always present, its numbers are bitwise those of `Federation(model, clients)`.

    Raises `SettingError` if the network is without learning, if its number of clients is another one, or if it measures
    gradients and the clients' samples are not on this machine.
    """

    clients: Clients
    network: Network = field(default_factory=Network)
    scheduler: Synchronous = field(default_factory=Synchronous)

    def __post_init__(self) -> None:
        self.network.fits(self.clients, self.scheduler)

    @property
    def data(self) -> FederatedData | None:
        return self.clients.data

    @property
    def problem(self) -> Problem:
        return self.clients.problem

    @property
    def sizes(self) -> Ints:
        return self.clients.sizes

    @property
    def held(self) -> bool:
        return self.clients.held

    @property
    def remember(self) -> bool:
        return self.clients.remember

    def fits(self, evaluation: Evaluation, seed: int, engine: Engine) -> None:
        self.clients.fits(evaluation, seed, engine)

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        clock = Clock(self.network, self.scheduler, self.sizes, training)
        chronicle = NetworkChronicle(clock.site, self._gradient(training))
        executor, notes = self.clients.open(training, rounds)
        return NetworkExecutor(executor, clock, chronicle), notes

    def settled(self, began: Mapping[str, Any]) -> OnNetwork:
        return replace(self, clients=self.clients.settled(began))

    def fingerprint(self, training: Training) -> dict[str, str]:
        return self.clients.fingerprint(training) | self.network.past(self.scheduler, training, self.sizes)

    def _gradient(self, training: Training) -> Callable[[Tensor], float] | None:
        if not self.network.gradients or self.data is None:
            return None
        return gradient_norm(training.module, training.sharing.layout, self.data, training.goal.loss, training.batch)


class TimedRequest(NamedTuple):
    """The part of a request on which time depends: its round, its clients, and whether it is a probe."""

    round: int
    ids: Ints
    probe: bool

    @property
    def order(self) -> tuple[int, bool]:
        """Its place among all requests of a run: a round's probe comes before its training."""
        return self.round, not self.probe


class Clock:
    """The network's simulation. Every request advances it, and it can be replayed with a list of requests."""

    def __init__(self, network: Network, scheduler: Synchronous, sizes: Ints, training: Training) -> None:
        self._network = network
        self._scheduler = scheduler
        self._seed = training.seed
        samples = training.samples(sizes)
        self._lengths = lengths(training, network.bytes)
        self._learner = Timing(len(sizes), self._lengths.train.up, samples=samples)
        # The share of a training's duration that one pass over a client's samples takes.
        self._one_pass: list[float] = (sizes / np.maximum(samples, 1)).tolist()
        self.rewind()

    def rewind(self) -> None:
        """Go back to time 0."""
        self.site: SimulatedSite = begin(Environment(), self._network, self._learner, rounds=math.inf, seed=self._seed)
        self._round = -1
        self._until = math.inf

    def play(self, request: TimedRequest) -> list[str]:
        """Simulate the events of a request. Returns for each client why it does not answer, "" if it answers.

        A round's deadline counts from its first request. A probe takes the time of one pass over a client's samples.
        Raises `Ended` if the run ends before the request does.
        """
        site = self.site
        clients = request.ids.tolist()
        self._learner.messages = self._lengths.of(request.probe)
        if request.round != self._round:
            self._until = self._scheduler.until(site)
            self._round = request.round
        site.version = request.round
        shares: Sequence[float] = ()
        if request.probe:
            shares = self._one_pass
        process = site.env.process(self._scheduler.round(site, clients, self._until, shares))
        site.advance(lambda: process.triggered)
        if not site.running:
            raise Ended(site.why)
        if not process.ok:
            raise cast(BaseException, process.value)
        trips = cast(list[Trip], process.value)
        reasons = {trip.client: trip.why for trip in trips}
        return [reasons.get(client, "away") for client in clients]


class NetworkExecutor(Executor):
    """Simulates each request on the network, and lets the wrapped executor answer for the uploads that arrive.

    Evaluation takes no simulated time. The executor remembers which clients it has asked so far. Since events never
    depend on models, it replays time from there without any training.
    """

    chronicle: NetworkChronicle

    def __init__(self, executor: Executor, clock: Clock, chronicle: NetworkChronicle) -> None:
        self._executor = executor
        self._clock = clock
        self.chronicle = chronicle
        self.threads = executor.threads
        self.server_threads = executor.server_threads
        self.minimum = executor.minimum
        self._requests: list[TimedRequest] = []
        self._played = 0

    def work(self, request: Request) -> Answers:
        if request.job in SCORES:
            yield from self._executor.work(request)
            return
        # 1. Let time pass. What was played and is not finished, or is now made again, must have taken no time.
        timed = TimedRequest(request.round, request.ids, request.job == "probe")
        while self._requests and self._requests[-1].order >= timed.order:  # the server has started this round again
            self._requests.pop()
        if self._played > len(self._requests):
            self._replay()
        self._played += 1
        reasons = self._clock.play(timed)

        # 2. Some uploads are lost; for the others the wrapped executor answers.
        arrived: list[int] = []
        for place, reason in enumerate(reasons):
            if reason:
                yield Missing(np.array([place]), reason)
            else:
                arrived.append(place)
        if arrived:
            places = np.array(arrived, dtype=np.int64)
            for answer in self._executor.work(request.only(places)):
                yield _placed(answer, places)
        self._requests.append(timed)

    def described(self) -> dict[str, Any]:
        return self._executor.described()

    def memory(self) -> int:
        return self._executor.memory()

    def saved(self) -> Vectors:
        """For each request so far: 2 * round + (1 if it was a probe), the number of its clients, and their ids."""
        codes: list[int] = []
        counts: list[int] = []
        ids = [np.empty(0, dtype=np.int64)]
        for request in self._requests:
            codes.append(2 * request.round + request.probe)
            counts.append(len(request.ids))
            ids.append(request.ids)
        saved = {
            "rounds": torch.tensor(codes, dtype=torch.int64),
            "asked": torch.tensor(counts, dtype=torch.int64),
            "ids": torch.from_numpy(np.concatenate(ids)),
        }
        for name, value in self._executor.saved().items():
            saved[INNER + name] = value
        return saved

    def load(self, saved: Vectors) -> None:
        self._executor.load(inner(saved))
        self._requests = []
        if "rounds" in saved:
            self._requests = _saved_requests(saved)
        self._replay()

    def close(self) -> None:
        self._executor.close()

    def _replay(self) -> None:
        """Replay time up to the end of the requests so far."""
        self._clock.rewind()
        self.chronicle.site = self._clock.site
        for request in self._requests:
            self._clock.play(request)
        self._played = len(self._requests)


def inner(saved: Vectors) -> Vectors:
    """The part of what was saved that belongs to the wrapped executor."""
    return {name.removeprefix(INNER): value for name, value in saved.items() if name.startswith(INNER)}


def _saved_requests(saved: Mapping[str, Tensor]) -> list[TimedRequest]:
    """The requests that `NetworkExecutor.saved` has encoded."""
    ids = saved["ids"].numpy()
    requests: list[TimedRequest] = []
    first = 0
    for code, count in zip(saved["rounds"].tolist(), saved["asked"].tolist(), strict=True):
        round, probe = divmod(code, 2)
        requests.append(TimedRequest(round, ids[first : first + count], bool(probe)))
        first += count
    return requests


def _placed(answer: Answer, arrived: Ints) -> Reply | Missing:
    """An answer to the reduced request, with the places of the whole request."""
    if isinstance(answer, PartialSum):
        raise RunError("behind a simulated network each upload is needed: take an engine that does not sum them up")
    return replace(answer, places=arrived[answer.places])
