"""The run without faults of the uploads that were accepted: a simulation in which all others are missing."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from fedsash.client.messages import Answers, Executor, Job, Missing, Reply, Request
from fedsash.engines import Training
from fedsash.server.federation import Federation
from fedsash.server.state import State
from fedsash.vector.arrays import Vectors
from fedsash.vector.vector_files import VectorFile

Accepted = Mapping[int, Set[int]]
"""The clients whose upload was accepted, by the round from 1."""


class Only(Executor):
    """Lets the clients train whose upload was accepted in their round, and answer a probe; all others are missing."""

    def __init__(self, executor: Executor, accepted: Mapping[Job, Accepted], minimum: int) -> None:
        self._executor = executor
        self._accepted = accepted
        self.minimum = minimum

    def work(self, request: Request) -> Answers:
        accepted = self._accepted[request.job].get(request.round + 1, set())
        present = []
        for place, client in enumerate(request.ids.tolist()):
            if client in accepted:
                present.append(place)
            else:
                yield Missing(np.array([place]), "not accepted")
        if not present:
            return
        places = np.array(present)
        for answer in self._executor.work(request.only(places)):
            assert isinstance(answer, Reply)
            yield replace(answer, places=places[answer.places])

    def close(self) -> None:
        self._executor.close()


class OnlyClients:
    """The clients of a simulation, of which only some are heard."""

    def __init__(self, clients: Any, accepted: Mapping[Job, Accepted], minimum: int) -> None:
        self._clients = clients
        self._accepted = accepted
        self._minimum = minimum

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """The executor that lets them train."""
        executor, notes = self._clients.open(training, rounds)
        return Only(executor, self._accepted, self._minimum), notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)


def reference(
    federation: Federation, accepted: Mapping[Job, Accepted], minimum: int, rounds: int, models: dict[int, Tensor]
) -> State:
    """The state after so many rounds of a simulation in which only these uploads count, by what is asked for.

    `models` gets the model of each round that has moved it, and the first one as that of round 0.
    """
    clients: Any = OnlyClients(federation.clients, accepted, minimum)
    with replace(federation, data=clients) as only:
        state = only.start()
        models[0] = state.w.clone()
        for _ in range(rounds):
            state, report = only.round(state)
            if report.moved:
                models[state.round] = state.w.clone()
    return state


def differences(state: State, expected: State) -> list[str]:
    """The tensors of a state that are not those of the reference, to the byte; client state is where it is kept."""
    found = []
    kept = dict(state.tensors())
    for name, value in expected.tensors():
        if name not in kept and name.startswith("client_state"):
            continue
        if name not in kept or kept[name].numpy().tobytes() != value.numpy().tobytes():
            found.append(name)
    past = dict(state.models())
    for name, model in expected.models():
        if name not in past or _bytes(past[name]) != _bytes(model):
            found.append(name)
    return found


def _bytes(model: Vectors | VectorFile) -> bytes:
    """The numbers of a past model, in memory or in a file."""
    vector = model.vector() if isinstance(model, VectorFile) else model["w"]
    content: bytes = vector.numpy().tobytes()
    return content
