"""Executors and engines as users would write them, some with mistakes."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, replace

import numpy as np

from fedsash.client.messages import Answers, Executor, Missing, PartialSum, Reply, Request
from fedsash.engines import ClientWork, Engine
from fedsash.engines.uploads import Uploads, pieces_of
from fedsash.server.federation import Federation
from fedsash.server.state import State


class OneByOne(Executor):
    """A user's executor: a trainer that answers for one client at a time."""

    def __init__(self, work: ClientWork) -> None:
        self._trainer = work.trainer()

    def work(self, request: Request) -> Answers:
        for place in range(len(request.ids)):
            yield self._trainer.answer(request.only(slice(place, place + 1)), np.array([place]))


@dataclass(frozen=True)
class Own(Engine):
    """A user's engine."""

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return OneByOne(work), ["engine: my own"]


class InParts(OneByOne):
    """An executor that sums its clients up where they are, the last piece first."""

    def __init__(self, work: ClientWork, pieces: int) -> None:
        super().__init__(work)
        self._work, self._pieces = work, pieces

    def work(self, request: Request) -> Answers:
        if request.job == "evaluate":
            yield from super().work(request)
            return
        training = self._work.training
        sizes, pieces = self._work.data.sizes, pieces_of(len(request.ids), self._pieces)
        parts: dict[int, PartialSum] = {}
        for number in reversed(range(self._pieces)):
            uploads = Uploads(request, training.aggregation, training.method, sizes, self._pieces)
            for place in pieces[number]:
                uploads.take(self._trainer.answer(request.only(np.array([place])), np.array([place])))
            parts[number] = uploads.partial_sum()
        yield from (parts[number] for number in sorted(parts))


@dataclass(frozen=True)
class Cluster(Engine):
    """An engine that answers with parts."""

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return InParts(work, self.pieces), []


def request_of(world: Federation, method_round: int = 0) -> Request:
    return world.ask(replace(world.start(), round=method_round))


def answers(world: Federation, request: Request) -> list[Reply]:
    found = list(world.executor.work(request))
    assert all(isinstance(answer, Reply) for answer in found)
    return found  # type: ignore[return-value]


@dataclass(frozen=True)
class Absent(Engine):
    """The clients `who` never answer to the job."""

    who: tuple[int, ...] = ()
    job: str = "train"

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return Without(work, self), []


class Without(OneByOne):
    def __init__(self, work: ClientWork, engine: Absent) -> None:
        super().__init__(work)
        self._engine = engine

    def work(self, request: Request) -> Answers:
        away = np.isin(request.ids, self._engine.who) & (request.job == self._engine.job)
        if away.any():
            yield Missing(np.flatnonzero(away), "late")
        here = np.flatnonzero(~away)
        for reply in super().work(request.only(here)):
            assert isinstance(reply, Reply)
            yield replace(reply, places=here[reply.places])


@dataclass(frozen=True)
class Twice(Engine):
    """An engine with a mistake: it answers a place twice, or not at all."""

    times: int = 2

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return Careless(work, self.times), []


class Careless(OneByOne):
    def __init__(self, work: ClientWork, times: int) -> None:
        super().__init__(work)
        self._times = times

    def work(self, request: Request) -> Answers:
        for answer in super().work(request):
            assert isinstance(answer, Reply)
            yield from [answer] * (self._times if answer.places[0] == 1 else 1)


def interrupted_rounds(world: Federation, rounds: int, pause: float) -> State:
    """The state after so many rounds, of which some were broken off by Ctrl-C, 1, 2, ... pauses in, and made again."""
    inside = False
    interrupted = 0
    state: State | None = None

    def interrupt(number: int, frame: object) -> None:
        # While a round changes the state in place it is spent: whoever breaks that off goes on from a copy.
        if inside and state is not None and not state.spent:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.0, lambda: None)
    timer.start()
    try:
        with world:
            state = world.start()
            world.prepare()
            while state.round < rounds:
                timer = threading.Timer(pause * (1 + interrupted), os.kill, (os.getpid(), signal.SIGUSR1))
                try:
                    inside = interrupted < 6
                    timer.start()
                    after, _ = world.round(state)
                    inside = False
                except KeyboardInterrupt:
                    inside = False
                    interrupted += 1
                else:
                    state = after
                timer.join()
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert interrupted > 0
    return state
