"""Clients that answer without training, to test a server with any answers in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from ..client.messages import Answers, Executor, Missing, Reply, Request, largest_norms
from ..data.federated import Problem
from ..data.transform import PLAIN
from ..engines import Engine, Training
from ..evaluation import Evaluation
from ..methods.base import Effort
from ..tasks import Classification
from ..vector.arrays import Ints
from ..vector.spaces import Uploaded

Handler = Callable[[Request], Mapping[str, Tensor] | str]
"""One client's answer to a request: its upload `{"delta": [D], ...}`, or the reason why it does not answer."""


@dataclass(frozen=True, eq=False)
class FakeClients:
    """`Clients` of the given `sizes` `[N]` whose answers come from `handler(request)`, called for one client at a time.

    `request.ids[0]` is the client, `request.sent` `[D]` the model that it received, `request.job` the job. Its client
    state does not change. It reports one local step with all of its samples.
    """

    handler: Handler
    sizes: Ints = field(default_factory=lambda: np.array([1, 2, 3]))
    problem: Problem = field(default_factory=lambda: Problem(None, 2, PLAIN, (), (), Classification()))
    held: bool = False
    remember: bool = False
    data: None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", np.asarray(self.sizes, dtype=np.int64))

    def fits(self, evaluation: Evaluation, seed: int, engine: Engine) -> None:
        """They fit every federation: they have no samples."""

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """An executor that calls the handler."""
        return Handled(self), ["clients: none, a function answers for them"]

    def settled(self, began: Mapping[str, Any]) -> FakeClients:
        """These clients, since they have nothing to choose."""
        return self

    def fingerprint(self, training: Training) -> dict[str, str]:
        """The clients' sizes."""
        return {"partition": str(self.sizes.tolist())}


class Handled(Executor):
    """An executor that answers each client's request with the handler's answer."""

    def __init__(self, clients: FakeClients) -> None:
        self._clients = clients

    def work(self, request: Request) -> Answers:
        for place, client in enumerate(request.ids):
            to_client = request.only(slice(place, place + 1))
            state = to_client.clients.own
            places = np.array([place])
            answer = self._clients.handler(to_client)
            if isinstance(answer, str):
                yield Missing(places, answer)
                continue
            upload = Uploaded({name: vector[None] for name, vector in answer.items()})
            effort = Effort(self._clients.sizes[[client]], np.ones(1, dtype=np.int64), np.ones(1))
            norms = largest_norms(upload, state, 1)
            yield Reply(places=places, upload=upload, client_state=state, norms=norms, effort=effort)
