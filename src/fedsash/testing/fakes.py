"""Clients that answer without training: what a server makes of any answers can be tried in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from ..basics.arrays import Ints
from ..data.federated import Problem
from ..exchange import Answers, Effort, Executor, Missing, Reply, Request, largest_norms
from ..executors import Training

Handler = Callable[[Request], Mapping[str, Tensor] | str]
"""What one client answers to a request of its own: its upload `{"delta": [D], ...}`, or why it does not answer."""


@dataclass(frozen=True, eq=False)
class FakeClients:
    """`Clients` of the given `sizes` `[N]` whose answers are made by `handler(request)`, asked for one client a time.

    `request.ids[0]` is the client, `request.sent` `[D]` what it received, `request.job` what is asked. It remembers
    what it remembered before, and reports one local step with each of its samples.
    """

    handler: Handler
    sizes: Ints = field(default_factory=lambda: np.array([1, 2, 3]))
    problem: Problem = field(default_factory=lambda: Problem(None, 2))
    held: bool = False
    remember: bool = False
    data: None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", np.asarray(self.sizes, dtype=np.int64))

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """An executor that asks the handler."""
        return Handled(self), ["clients: none, a function answers for them"]

    def settled(self, began: Mapping[str, Any]) -> FakeClients:
        """Themselves: nothing is left open."""
        return self

    def fingerprint(self) -> dict[str, str]:
        """Their sizes."""
        return {"partition": str(self.sizes.tolist())}


class Handled(Executor):
    """Answers each client's request as the handler does."""

    def __init__(self, clients: FakeClients) -> None:
        self._clients = clients

    def work(self, request: Request) -> Answers:
        for place, client in enumerate(request.ids):
            one, where = request.only(slice(place, place + 1)), np.array([place])
            answer = self._clients.handler(one)
            if isinstance(answer, str):
                yield Missing(where, answer)
                continue
            upload = {name: vector[None] for name, vector in answer.items()}
            effort = Effort(self._clients.sizes[[client]], np.ones(1, dtype=np.int64), np.ones(1))
            yield Reply(
                places=where,
                upload=upload,
                client_state=one.client_state or {},
                norms=largest_norms(upload, 1),
                effort=effort,
            )
