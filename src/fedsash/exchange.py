"""The exchange: what goes down to clients and what comes back, as plain values.

The server makes a `Request` and an `Executor` answers it, wherever the clients live: in this process, in others, on
other machines. So whoever trains knows nothing of the server's state, and the server nothing of samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .basics.arrays import Floats, Ints, Vectors
from .basics.shown import Shown
from .methods import Upload

Job: TypeAlias = Literal["train", "probe", "evaluate"]
"""What clients are asked for: an update, what the method needs to know before it, or how good a model is for them."""


Lineage: TypeAlias = tuple[tuple[int, str], ...]
"""The runs that a run consists of: the first round of each, and its id."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Request(Shown):
    """What some clients of a round are asked, with all that they need for it.

    `ids` `[s]` are the numbers of the clients, in the round's order; a client's place is its position there. `round`
    counts from 0. `sent` `[D]` is the model that they receive, `server_state` the method's vectors beside it.
    `client_state` `[s, ...]` is theirs; None where clients keep their own. Then `last[i]` says which version client i
    goes on from: the round after which its client state was last accepted, 0 if never. Whatever a client made later was
    refused, or got lost, and does not count. The run is never set back to before the round `oldest`. `lineage` are the
    ids of the runs that this one consists of, each with its first round: a fork begins with its source's.
    """

    job: Job
    round: int
    ids: Ints
    sent: Tensor
    server_state: Vectors
    client_state: Vectors | None
    last: Ints
    oldest: int = field(default=0, repr=False)
    lineage: Lineage = field(default=(), repr=False)

    def run_of(self, version: int) -> str:
        """The id of the run that has made a version (of client state), so that two runs don't take each other's."""
        return next((run for first, run in reversed(self.lineage) if first < version), "")

    def only(self, places: slice | Ints) -> Request:
        """The same request to the clients at these places, which are numbered from 0 again."""
        own = self.client_state and {name: rows[places] for name, rows in self.client_state.items()}
        return replace(self, ids=self.ids[places], client_state=own, last=self.last[places])


@dataclass(frozen=True, eq=False, repr=False)
class Effort(Shown):
    """What clients did, as they report it: `samples` `[b]` they trained on, local `steps` `[b]` they took.

    `normaliser` `[b]` are FedNova's a_i, where the aggregation asks for them (see `LocalTraining.coefficients`).
    """

    samples: Ints
    steps: Ints
    normaliser: Floats | None = None

    def only(self, rows: list[int]) -> Effort:
        """That of some of the clients."""
        normaliser = None if self.normaliser is None else self.normaliser[rows]
        return Effort(self.samples[rows], self.steps[rows], normaliser)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Reply(Shown):
    """What the clients at some `places` `[b]` of a request send back, in tensors that nobody else writes to.

    `upload` `[b, ...]` is what they send up, `client_state` `[b, ...]` their new client state (empty where they keep
    their own), `norms` `[b]` the largest norm among each client's uploaded vectors.
    """

    places: Ints
    upload: Upload
    client_state: Vectors
    norms: Tensor
    effort: Effort


@dataclass(frozen=True, eq=False, repr=False)
class Missing(Shown):
    """The clients at these places do not answer, and why: "late", "lost", "failed: out of memory", say."""

    places: Ints
    why: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PartialSum(Shown):
    """One fixed piece of a round, summed where its clients are (see `UploadSums.piece`).

    It holds the weighted `sums` over the clients at the places `accepted`, their new `client_state`
    `[a, ...]` in that order, the places `refused` and those `missing` with the reason, and the `samples` that those who
    answered trained on.
    """

    accepted: Ints
    sums: Vectors
    client_state: Vectors
    samples: int
    refused: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    missing: Mapping[int, str] = field(default_factory=dict)


Answer: TypeAlias = Reply | Missing | PartialSum

Answers: TypeAlias = Generator[Answer, None, None]
"""The answers to a request, one after another; `close` gives the rest of them up."""


class Ended(Exception):
    """The run is over before its rounds are done, and why. The state is that before the round in which it is raised."""


class Chronicle(Protocol):
    """What is to be told of a run beside its models: of the time on a simulated network, say."""

    def rows(self, round: int, w: Tensor, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows of an evaluation after `round` as they are recorded; `w` `[D]` is the global model."""
        ...

    def summary(self, history: list[dict[str, Any]], target: float) -> dict[str, Any]:
        """What the run's summary says more; `target` is the accuracy whose first round is reported."""
        ...

    def timeline(self) -> dict[str, Any]:
        """Who did what when, as the run's folder keeps it."""
        ...


class Executor(ABC):
    """Those who answer requests. Whoever lets clients train elsewhere overrides `work`, and what else he needs."""

    threads: int | None = None
    """With how many threads this process may compute while clients rest; None: as many as it has."""
    chronicle: Chronicle | None = None
    """What it has to tell of the run."""

    @abstractmethod
    def work(self, request: Request) -> Answers:
        """Answer a request: every place exactly once; uploads in the round's order, what is `Missing` at any time.

        An answer belongs to whoever takes it: it is not written to again. If the iterator is given up half-way, by an
        exception, by Ctrl-C, or since its consumer has stopped, the next request is answered as if it were the first.
        It raises `Ended` where the run is over and nobody will answer any more.
        An exception that a client's training raises is passed on, with a note that names the clients and the round.
        """

    def described(self) -> dict[str, Any]:
        """What it is, as a run's folder keeps it: an engine that leaves something open is opened as this again."""
        return {}

    def memory(self) -> int:
        """The bytes of its own processes, beside this one."""
        return 0

    def saved(self) -> Vectors:
        """What it must remember between two rounds (a clock, say), to be saved with the run's state."""
        return {}

    def load(self, saved: Vectors) -> None:
        """Go on from what was `saved`; empty: from the beginning."""
        return None

    def close(self) -> None:
        """End its processes."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundReport:
    """What a round was: who was asked, how many samples were trained on, whose upload was refused, who did not answer
    and why, and why the model did not move."""

    round: int
    clients: Ints
    samples: int = 0
    refused: list[int] = field(default_factory=list)
    missing: Mapping[int, str] = field(default_factory=dict)
    skipped: str = ""

    @property
    def moved(self) -> bool:
        """Whether the model is another one than before the round."""
        return not self.skipped

    def lines(self) -> Iterator[str]:
        """What went wrong, in words."""
        if self.refused:
            yield f"left out the uploads of clients {_some(self.refused)}"
        if self.missing:
            yield f"no answer from {_some([f'client {client} ({why})' for client, why in self.missing.items()])}"
        if self.skipped:
            yield f"skipped, {self.skipped}"


def _some(what: Sequence[object], most: int = 10) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(what) - most} more" if len(what) > most else ""
    return ", ".join(map(str, what[:most])) + more


def largest_norms(upload: Upload, count: int) -> Tensor:
    """The largest Euclidean norm among each of `count` clients' vectors, `[b]`; not a number where a value is not."""
    norms: list[Tensor] = [torch.linalg.vector_norm(v.reshape(len(v), -1), dim=1) for v in upload.values()]
    if len(norms) == 1:
        return norms[0]
    return torch.stack(norms).amax(dim=0) if norms else torch.zeros(count)
