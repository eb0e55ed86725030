"""The actors of an executor: who is free, who is at work on which piece, and a new one for each that dies."""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import ObjectLostError, OutOfDiskError, OutOfMemoryError, RayActorError, RayTaskError

from ...client.messages import Answer, PartialSum, Request
from ...client.store import ClientTicket, StateHandles
from ...settings.errors import WorkerError, shortened
from ...vector.arrays import Ints, Objects
from .object_store import ClusterStates, InCluster, Packed, copied, packed, unpacked


@dataclass(frozen=True, eq=False)
class PieceCall:
    """Piece `number` of a request, with the clients at these `places`.

    `everybody` is the reference of the request without client state, which all pieces share. The state of the piece's
    clients goes along. If the cluster has it, in `states`, only references do, and come back.
    """

    request: Request
    everybody: Any
    number: int
    places: Ints
    states: ClusterStates

    def make(self, actor: Any) -> list[Any]:
        """Call the actor: the references of the answer, and of the clients' new state if the cluster keeps it."""
        ticket = self._ticket
        if not isinstance(ticket, StateHandles):
            return [actor.answer.remote(self.everybody, self.number, packed(ticket.own))]
        states = self.states.refs(ticket.handles)
        method = actor.answer.options(num_returns=1 + len(self.places))
        refs: list[Any] = method.remote(self.everybody, self.number, packed({}), *states)
        return refs

    def mend(self) -> None:
        """Replace what was lost of the arguments."""
        ticket = self._ticket
        if isinstance(ticket, StateHandles):
            self.states.mend(ticket.handles)

    def opened(self, answer: Packed, new_states: list[Any]) -> list[Answer]:
        """The answers of the clients, with handles on their new state. Raises an exception of their training."""
        content = unpacked(copied(answer))
        if isinstance(content, Exception):
            raise content
        answers: list[Answer] = list(content)
        if not isinstance(self.request.clients, StateHandles) or self.request.job != "train":
            return answers
        handles: Objects = np.empty(len(new_states), dtype=object)
        clients = self.request.ids[self.places].tolist()
        for place, (client, ref) in enumerate(zip(clients, new_states, strict=True)):
            handles[place] = InCluster(client=client, ref=ref)
        first = self.places[0]
        return [replace(one, handles=handles[_places(one) - first]) for one in answers]

    @property
    def _ticket(self) -> ClientTicket:
        """With what the clients of the piece find their state."""
        return self.request.clients.only(self.places)


def _places(answer: Answer) -> Ints:
    """The places of the clients whose state an answer has."""
    if isinstance(answer, PartialSum):
        return answer.accepted
    return answer.places


log = logging.getLogger("fedsash")

REPLACED = 2
"""How often an actor that died is replaced before a piece of a round, or before it has started."""

PATIENCE = 300.0
"""For so many seconds a request waits for an actor to start, if none is at work."""

DEAD = (RayActorError, ObjectLostError, OutOfMemoryError)
"""What Ray raises if an actor, or the machine with its answer, is gone."""

OpenCalls = dict[Any, tuple[int, list[Any]]]
"""The number of each call that is under way by the reference of its answer, and the references that come with it."""

START = -1
"""The place of a piece's number where an actor starts."""


class Pool:
    """`count` actors, each made by `make`. They start in the background, and take part when they are ready.

    A piece whose actor dies is given to another one, and a new actor starts in place of the dead one. If that happens
    more than `REPLACED` times with the same piece of a request, or with actors that start, `WorkerError` is raised.
    """

    def __init__(self, make: Callable[[], Any], count: int) -> None:
        self._make = make
        self._count = count
        self._losses = Counter[int]()
        self._free: list[Any] = []
        self._busy: dict[Any, Any] = {}
        self._starting: set[Any] = set()
        self._fill()

    def first(self) -> None:
        """Wait for the first actor. Raises an exception that it had when it started."""
        while not self._free:
            self._next({}, "the start")

    def answers(self, calls: Mapping[int, PieceCall], what: str) -> Iterator[tuple[int, Packed, list[Any]]]:
        """The number of each call, its answer and the references of what comes with it, as they come.

        Those that are first in order begin first. A call that was given up before may still keep its actor busy. `what`
        names the request in messages.
        """
        waiting = deque(calls)
        open_calls = OpenCalls()
        self._losses.clear()
        self._fill()
        done = 0
        while done < len(calls):
            self._hand_out(calls, waiting, open_calls)
            number, answer, others = self._next(open_calls, what)
            if number is None:
                continue
            if answer is None:
                calls[number].mend()
                waiting.appendleft(number)
                continue
            self._hand_out(calls, waiting, open_calls)  # no actor is idle while the answer is used
            done += 1
            yield number, answer, others

    def processes(self) -> Iterator[tuple[int, int]]:
        """The number of the process of each actor that is free, and its memory in bytes."""
        processes = [actor.process.remote() for actor in self._free]
        for process in processes:
            with suppress(*DEAD):  # the next request will find that it has died
                yield ray.get(process)

    def close(self) -> None:
        """End all actors."""
        if ray.is_initialized():
            for actor in (*self._free, *self._busy.values()):
                ray.kill(actor)
        self._free = []
        self._busy = {}

    def _fill(self) -> None:
        """Start as many actors as are not there: a request that was interrupted or refused may have left fewer."""
        for _ in range(self._count - len(self._free) - len(self._busy)):
            self._start()

    def _start(self) -> None:
        """Start an actor, which is busy until it is ready."""
        actor = self._make()
        ready = actor.ready.remote()
        self._busy[ready] = actor
        self._starting.add(ready)

    def _hand_out(self, calls: Mapping[int, PieceCall], waiting: deque[int], open_calls: OpenCalls) -> None:
        """Give the calls that wait to the actors that are free."""
        while waiting and self._free:
            actor = self._free.pop()
            number = waiting.popleft()
            answer, *others = calls[number].make(actor)
            self._busy[answer] = actor
            open_calls[answer] = (number, others)

    def _next(self, open_calls: OpenCalls, what: str) -> tuple[int | None, Packed | None, list[Any]]:
        """Wait until an actor has finished something: the number of the call, its answer, and what comes with it.

        The answer is None if the actor has died, or if an argument was lost. The number is None if the actor has
        started, or if it has answered a call that was given up.
        """
        # 1. Wait for an actor, and see what it had to do: to start, a call of this request, or one that was given up.
        ready, _ = ray.wait([*self._busy], num_returns=1, timeout=PATIENCE)
        if not ready:
            if self._busy.keys() <= self._starting:
                raise WorkerError(f"{what}: no actor has started within {PATIENCE:g} s; has the cluster free cores?")
            return None, None, []
        ended = ready[0]
        actor = self._busy.pop(ended)
        number: int | None = None
        others: list[Any] = []
        if ended in open_calls:
            number, others = open_calls.pop(ended)
        starts = ended in self._starting
        self._starting.discard(ended)

        # 2. Get the answer. If the actor has died a new one starts; if it has not got what it needs, it goes on.
        answer: Any = None
        try:
            if starts or number is not None:
                answer = ray.get(ended)
        except DEAD as error:
            if isinstance(error, RayTaskError):  # the actor lives
                self._count_loss(number, f"{what}: what an actor needs is gone ({reason(error)})")
                self._free.append(actor)
            elif starts:
                self._replace(actor, START, what, error)
            else:
                self._replace(actor, number, what, error)
            return number, None, []
        except OutOfDiskError:
            self._free.append(actor)
            raise
        if starts:
            failure = unpacked(answer)
            if isinstance(failure, Exception):
                raise failure
        self._free.append(actor)
        return number, answer, others

    def _replace(self, dead: Any, number: int | None, what: str, error: Exception) -> None:
        """Start a new actor in place of a dead one, which had this call."""
        ray.kill(dead)
        why = f"{what}: an actor died ({reason(error)})"
        self._count_loss(number, why)
        log.warning("%s; a new one takes its place", why)
        self._start()
        self._replace_idle()

    def _replace_idle(self) -> None:
        """Replace free actors that have died with nothing to do, as with their machine, before a piece tries them."""
        processes = [(actor, actor.process.remote()) for actor in self._free]
        self._free = []
        for actor, process in processes:
            try:
                ray.get(process)
            except DEAD:
                ray.kill(actor)
                self._start()
            else:
                self._free.append(actor)

    def _count_loss(self, number: int | None, why: str) -> None:
        """Count what a call has lost: an actor, or what the actor needs. Raises `WorkerError` after too many."""
        if number is None:
            return
        self._losses[number] += 1
        if self._losses[number] > REPLACED:
            raise WorkerError(f"{why}, as did the {REPLACED} before it")


def reason(error: Exception) -> str:
    """Why Ray says that an actor is dead: the sentence that says so in its many lines, or the last line."""
    match = re.search(r"The actor is dead because ([^.]*)", str(error))
    if match is not None:
        return shortened(match[1], 200)
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return shortened(lines[-1], 200)
