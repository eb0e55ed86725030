"""The executor on a Ray cluster: fixed pieces of a round go to actors, and their sums come back."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import ray
from ray.exceptions import OutOfDiskError

from ...client.messages import Answer, Answers, Executor, Request
from ...client.store import StateRows
from ...settings.errors import SettingError, WorkerError, check, one_line, shortened
from ...system.machine import core_count
from ...system.subprocesses import STOPS
from ..processes import signals_wait
from ..training import ClientWork
from ..uploads import pieces_of
from .actor import Actor
from .engine import RayEngine
from .object_store import ClusterStates, Packed, packed
from .pool import PieceCall, Pool

CONNECTING = 10.0
"""For so many seconds an address may leave a call unanswered."""


def opened(engine: RayEngine, work: ClientWork) -> tuple[Executor, list[str]]:
    """A running executor, and a line that says where it runs; see `RayEngine.open`."""
    work.training.check_picklable(lambda part: ray.cloudpickle.dumps(part))
    connect(engine.address, "RayEngine.address")
    cores = int(ray.cluster_resources().get("CPU", 0))
    count = engine.actors
    if count is None:
        clients_of_round = max(map(len, work.training.sample))
        count = max(min(cores, engine.pieces, clients_of_round), 1)
    else:
        check(count <= cores, "RayEngine.actors", count, f"must be at most the {cores} cores there")
    number = len(ray.nodes())
    machines = f"{number} machines"
    if number == 1:
        machines = "1 machine"
    line = f"engine: {count} actors on a Ray cluster with {cores} cores on {machines}"
    return OnRay(engine, work, count), [line]


class OnRay(Executor):
    """Answers requests on `count` actors. The samples are put into the cluster once.

    A round's pieces are given out by how long they take, the longest first, and answered in the round's order. A
    training or a probe is answered with a `PartialSum` for each piece, or with replies if the aggregation needs each
    single update; an evaluation with replies. If a request is given up, its actors finish what they have begun, and
    nobody reads it.
    """

    threads = 1
    server_threads = 1
    """The actors use the cores."""

    def __init__(self, engine: RayEngine, work: ClientWork, count: int) -> None:
        self._engine = engine
        self._trainer = engine.here.trainer(work)
        # A new actor is made of these, too: Ray drops what nobody here refers to.
        self._training = ray.put(packed(work.training))
        self._data = ray.put(packed(work.data))
        self._actor_class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)
        self._pool = Pool(self._make_actor, count)
        self._states = ClusterStates()
        self._request: Request | None = None
        try:
            self._pool.first()
        except BaseException:
            self.close()
            raise

    def work(self, request: Request) -> Answers:
        self._request = request
        what = f"round {request.round + 1}"
        try:
            for answer in self._answers(request, what):
                yield answer
                if self._request is not request:
                    raise RuntimeError("this request can't be continued: the executor has since been given another")
        except OutOfDiskError as error:
            raise WorkerError(f"{what}: Ray's object store and the disk behind it are full on a machine") from error

    def _make_actor(self) -> Any:
        """A new actor, which starts in the background."""
        return self._actor_class.remote(self._training, self._data, self._engine.here, self._engine.pieces, sys.path)

    def _answers(self, request: Request, what: str) -> Iterator[Answer]:
        """The answers in the round's order; those of later pieces that come early wait."""
        calls = self._calls(request)
        early: dict[int, tuple[Packed, list[Any]]] = {}
        answers = self._pool.answers(calls, what)
        for number in sorted(calls):
            while number not in early:
                piece, answer, new_states = next(answers)
                early[piece] = (answer, new_states)
            answer, new_states = early.pop(number)
            yield from calls[number].opened(answer, new_states)

    def described(self) -> dict[str, Any]:
        return asdict(self._engine)

    def memory(self) -> int:
        return sum(memory for _, memory in self._pool.processes())

    def close(self) -> None:
        self._pool.close()

    def _calls(self, request: Request) -> dict[int, PieceCall]:
        """The call of an actor for each piece with clients, the longest first."""
        costs = self._trainer.costs(request)
        everybody = ray.put(packed(replace(request, clients=StateRows())))
        pieces = pieces_of(len(request.ids), self._engine.pieces)
        with_clients = [number for number, places in enumerate(pieces) if len(places)]
        longest = sorted(with_clients, key=lambda number: -int(costs[pieces[number]].sum()))
        return {number: PieceCall(request, everybody, number, pieces[number], self._states) for number in longest}


def connect(address: str | None, field: str) -> None:
    """Connect this process to a cluster, unless it is connected already; without an address, start one.

    Ray stays until this process ends. Raises `SettingError`, which names the `field`, if the cluster can't be reached.
    """
    if ray.is_initialized():
        return
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is started here reports to nobody
        settings |= {"address": "local", "include_dashboard": False, "num_cpus": core_count()}
    try:
        _check_port(address or "")
        with signals_wait(), _own_signals():  # a signal that has waited must find our action again
            ray.init(**settings)
    except (OSError, RuntimeError, ValueError) as error:
        addresses = '"auto" is the Ray that runs on this machine, HOST:PORT one elsewhere'
        message = f"can't be reached: {addresses} ({shortened(one_line(error), 200)})"
        raise SettingError.at(field, address, message) from error


def _check_port(address: str) -> None:
    """Raise `OSError` unless something listens at an address with a port; Ray would try it for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTING).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what this process does at signals that ask to stop: Ray would end it at once."""
    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        yield
    finally:
        for number, action in before.items():
            if action is not None and signal.getsignal(number) is not action:
                signal.signal(number, action)
