"""The exchange: what clients receive and send back, as plain values, who answers, and who listens.

The server makes a `Request` and an `Executor` answers it. The clients may live in this process, in other processes or
on other machines. So the client half does not know the server's state, and the server does not know the samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..methods.base import Effort
from ..settings.errors import some
from ..vector.arrays import Ints, Objects, Vectors
from ..vector.sharing import STATISTICS
from ..vector.shown import Shown
from ..vector.spaces import AggregationMemory, ClientState, Download, Uploaded, WholeModel
from .store import ClientTicket, StateRows

Job: TypeAlias = Literal["train", "probe", "evaluate", "tune"]
"""What a request asks for: an update, vectors that the method needs before the training, scores of a model, or scores
of each client's copy of the model after it has fine-tuned it."""

SCORES: tuple[Job, ...] = ("evaluate", "tune")
"""The jobs of an evaluation. They take no simulated time and change no client's state."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Request(Shown):
    """A request to some clients of a round, with all that they need to answer it.

    - `job`: what is asked; `round`: the index of the round, from 0;
    - `ids` `[s]`: the numbers of the clients, in the round's order. A client's place is its position in `ids`;
    - `sent` `[D]`: the model that they receive; `server_state`: the method's vectors that they receive with it, if they
      train;
    - `clients`: with what they find their client state: the state `[s, ...]` itself, handles on it, or its versions;
    - `aggregation`: what the aggregation remembers, for whoever sums up the uploads;
    - `server_steps`: how many steps the server had made, if schedules count these instead of rounds.
    """

    job: Job
    round: int
    ids: Ints
    sent: WholeModel
    server_state: Download
    clients: ClientTicket = field(default_factory=StateRows)
    aggregation: AggregationMemory = field(default_factory=lambda: AggregationMemory({}), repr=False)
    server_steps: int | None = field(default=None, repr=False)

    def only(self, places: slice | Ints) -> Request:
        """The same request to the clients at these places; their new places count from 0."""
        return replace(self, ids=self.ids[places], clients=self.clients.only(places))

    def blocks(self, size: int) -> Iterator[tuple[slice, Request]]:
        """The request in blocks of `size` clients, with their places; the job "evaluate", whose batches may mix
        clients' samples, is one block."""
        count = len(self.ids)
        if count == 0:
            return
        if self.job == "evaluate" or size >= count:
            yield slice(0, count), self
            return
        for first in range(0, count, size):
            rows = slice(first, min(first + size, count))
            yield rows, self.only(rows)

    def gathered(self) -> Request:
        """The same request with the client state behind handles, brought to this process."""
        return replace(self, clients=self.clients.gathered())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Reply(Shown):
    """The answer of the clients at some `places` `[b]` of a request.

    Its tensors stay as they are until the executor is given its next request: they may lie in memory that worker
    processes share. Who needs them longer copies them.

    `upload` `[b, ...]` are their uploads, `client_state` `[b, ...]` their new client state (empty if they keep it
    themselves), or `handles` `[b]` are handles on it. `norms` `[b]` is the largest Euclidean norm among each client's
    uploaded vectors, not finite if its upload or its new client state is not (see `largest_norms`).
    """

    places: Ints
    upload: Uploaded
    client_state: ClientState
    norms: Tensor
    effort: Effort
    handles: Objects | None = field(default=None, repr=False)

    def only(self, rows: list[int]) -> Reply:
        """The answer of some of the clients."""
        handles = None
        if self.handles is not None:
            handles = self.handles[rows]
        return replace(
            self,
            places=self.places[rows],
            upload=Uploaded({name: value[rows] for name, value in self.upload.items()}),
            client_state=ClientState({name: value[rows] for name, value in self.client_state.items()}),
            norms=self.norms[rows],
            effort=self.effort.only(rows),
            handles=handles,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Missing(Shown):
    """Clients at some `places` that do not answer, and why, for example "late", "lost", "failed: out of memory"."""

    places: Ints
    why: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PartialSum(Shown):
    """The sum of one fixed piece of a round, made where its clients are (see `Sums`).

    - `accepted` `[a]`: the places of the clients in the sums, ascending;
    - `sums`: the weighted sums of their uploads; `client_state` `[a, ...]`: their new client state, or `handles` `[a]`
      on it;
    - `refused`: the places of the clients whose upload the guard refused;
    - `missing`: the places of the clients that did not answer, and why;
    - `samples`: how many samples the clients that answered have trained on.
    """

    accepted: Ints
    sums: Vectors
    client_state: ClientState
    samples: int
    refused: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    missing: Mapping[int, str] = field(default_factory=dict)
    handles: Objects | None = field(default=None, repr=False)

    @property
    def places(self) -> Ints:
        """The places of all clients of the piece, ascending."""
        missing = np.array([*self.missing], dtype=np.int64)
        return np.sort(np.concatenate([self.accepted, self.refused, missing]))


Answer: TypeAlias = Reply | Missing | PartialSum

Answers: TypeAlias = Generator[Answer, None, None]
"""The answers to a request, one after another; `close` abandons the remaining ones."""


class Collector:
    """Who has answered a request to the clients `ids` `[s]`. Clients are named by their places in `ids`.

    - `accepted`: the places of the clients whose answer is used, in the order of the answers;
    - `refused`: the places of the clients whose upload the guard has refused;
    - `missing`: the places of the clients that did not answer, and why;
    - `client_state`: the new client state of accepted clients: their places `[b]`, and the rows `[b, ...]` or the
      handles `[b]`. It waits here for the end of the round, since a skipped round must not change it;
    - `samples`: how many samples the clients have trained on.
    """

    def __init__(self, ids: Ints) -> None:
        self.ids = ids
        self.accepted: list[int] = []
        self.refused: list[int] = []
        self.missing: dict[int, str] = {}
        self.client_state: list[tuple[Ints, ClientState | Objects]] = []
        self.samples = 0

    def hear(self, answers: Answers, take: Callable[[Reply | PartialSum], None]) -> None:
        """Hear all answers to the request: a lost one is recorded as `missing`, the others are given to `take`.

        Raises `RuntimeError` if a place is answered twice or not at all, or if uploads are not in the round's order:
        the bytes of their sum depend on it.
        """
        answered: set[int] = set()
        newest = -1
        with closing(answers):
            for answer in answers:
                places = answer.places.tolist()
                uploaded = bool(places) and not isinstance(answer, Missing)
                in_turn = [newest, *places]
                too_late = uploaded and in_turn != sorted(in_turn)
                before = len(answered)
                answered.update(places)
                if too_late or len(answered) < before + len(places):
                    promise = "every place is answered once, uploads in ascending order"
                    raise RuntimeError(f"the executor answers for the places {places} again, or too late: {promise}")
                if isinstance(answer, Missing):
                    self.missing |= dict.fromkeys(places, answer.why)
                    continue
                if uploaded:
                    newest = places[-1]
                take(answer)
        if len(answered) < len(self.ids):
            unanswered = [client for place, client in enumerate(self.ids.tolist()) if place not in answered]
            raise RuntimeError(
                f"the executor has not answered for the clients {unanswered}: every place must be answered"
            )

    def replies(self, answers: Answers) -> list[Reply]:
        """All replies among the answers to a request, for who does not sum them up; all are accepted.

        Raises `RuntimeError` as `hear` does, or if a place is answered by a `PartialSum`.
        """
        replies: list[Reply] = []

        def take(answer: Reply | PartialSum) -> None:
            if isinstance(answer, PartialSum):
                raise RuntimeError("the executor sums up answers that are needed one by one: it must send replies")
            self.accepted += answer.places.tolist()
            replies.append(answer)

        self.hear(answers, take)
        return replies


def in_order(answers: Iterable[Reply | Missing]) -> Iterator[Reply | Missing]:
    """Answers of single clients that come in any order: who is missing at once, replies in the round's order.

    A reply waits until all clients before it have answered or are missing.
    """
    early: dict[int, Reply | Missing] = {}
    following = 0
    for answer in answers:
        if isinstance(answer, Missing):
            yield answer
        early |= dict.fromkeys(answer.places.tolist(), answer)
        while following in early:
            ready = early.pop(following)
            if isinstance(ready, Reply):
                yield ready
            following += 1


class Ended(Exception):
    """Says that the run ends before its last round, and why. The state is that before the round that raises it."""


class Executor(ABC):
    """The base class of executors, which answer requests. An executor overrides `work`, and other methods if needed."""

    threads: int | None = None
    """How many threads this process may use while no client trains; None: all that PyTorch has."""
    server_threads: int | None = None
    """The same for the server's half of a round."""
    chronicle: Any = None
    """Its additional records of the run, a `Chronicle`; None without."""
    minimum: int = 1
    """A round with fewer usable uploads than this is skipped."""

    @abstractmethod
    def work(self, request: Request) -> Answers:
        """Answer a request. Every place is answered once; uploads come in the round's order, `Missing` at any time.

        The executor does not write to an answer before its next request. If the iterator is abandoned before its end
        (by an exception, by Ctrl-C, or because its consumer stops), the next request is answered as if it were the
        first. Raises `Ended` if the run is over and clients will not answer any more. An exception of a client's
        training is passed on, with a note that names the clients and the round.
        """

    def described(self) -> dict[str, Any]:
        """Its settings, which the run's folder keeps. A resumed run opens an engine with "auto" settings with these."""
        return {}

    def memory(self) -> int:
        """The memory of its own processes in bytes, without this process."""
        return 0

    def saved(self) -> Vectors:
        """What it must remember between two rounds, for example a clock; it is saved with the run's state."""
        return {}

    def load(self, saved: Vectors) -> None:
        """Continue from the vectors that `saved` gave; if they are empty, from the beginning."""
        return None

    def close(self) -> None:
        """End its processes."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundReport:
    """The report of a round.

    - `round`: its number, from 1; `clients` `[s]`: the numbers of the clients that were asked; of an asynchronous step
      those of the uploads that were used or refused, one client maybe several times;
    - `samples`: how many samples they have trained on;
    - `refused`: the clients whose upload was refused; `missing`: the clients that did not answer, and why;
    - `skipped`: why the model did not move; empty if it did.
    """

    round: int
    clients: Ints
    samples: int = 0
    refused: list[int] = field(default_factory=list)
    missing: Mapping[int, str] = field(default_factory=dict)
    skipped: str = ""

    @property
    def moved(self) -> bool:
        """Whether the round has moved the model."""
        return not self.skipped

    def lines(self) -> Iterator[str]:
        """The problems of the round, one sentence each."""
        if self.refused:
            yield f"left out the uploads of clients {some(self.refused, 10)} (not finite, or above aggregation.limit)"
        if self.missing:
            yield no_answer(self.missing)
        if self.skipped:
            yield f"skipped, {self.skipped}"


def no_answer(missing: Mapping[int, str]) -> str:
    """A sentence about the clients that have not answered, and why."""
    clients = [f"client {client} ({why})" for client, why in missing.items()]
    return f"no answer from {some(clients, 10)}"


def largest_norms(upload: Uploaded, client_state: ClientState, count: int) -> Tensor:
    """The largest Euclidean norm among each client's uploaded vectors, `[count]`; NaN if one of its values is NaN.

    Statistics and new client state count as 0 if their norm is finite, and as NaN otherwise: they are as large as the
    data and the optimiser's moments are.
    """
    norms: list[Tensor] = []
    for vectors in (upload, client_state):
        for name, value in vectors.items():
            rows = value
            if value.dim() != 2:
                rows = value.reshape(len(value), math.prod(value.shape[1:]))
            if not rows.is_floating_point():  # client state may be whole numbers
                rows = rows.double()
            norm = torch.linalg.vector_norm(rows, dim=1)
            if vectors is client_state or name == STATISTICS:
                norm = 0 * norm
            norms.append(norm)
    if not norms:
        return torch.zeros(count)
    if len(norms) == 1:
        return norms[0]
    return torch.stack(norms).amax(dim=0)
