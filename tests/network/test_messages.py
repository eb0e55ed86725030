"""How long messages on a network are: as long as what clients really receive and send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fedsash.client.messages import SCORES, Answers, Executor, Reply, Request
from fedsash.engines import Training
from fedsash.engines.clients import LocalClients
from fedsash.methods import FedAvg, Mime, Scaffold
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.network import Link, Network, OnNetwork, SimulatedClients
from fedsash.server.federation import Federation
from support.by_default import some
from support.choices import METHODS
from support.norms import with_norm
from support.personal import personal
from support.worlds import federation


class Counting(Executor):
    """Another executor, whose messages are counted in bytes."""

    def __init__(self, inner: Executor, kept: int) -> None:
        self.inner, self.kept, self.down, self.up = inner, kept, 0, 0

    def work(self, request: Request) -> Answers:
        counts = request.job not in SCORES
        sent = request.sent[self.kept :], *request.server_state.values()
        for answer in self.inner.work(request):
            assert isinstance(answer, Reply)
            if counts:
                self.down += len(answer.places) * sum(value.nbytes for value in sent)
                self.up += sum(value.nbytes for value in answer.upload.values())
            yield answer

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True, eq=False)
class Counted(LocalClients):
    """Clients behind a `Counting` executor."""

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        executor, notes = super().open(training, rounds)
        return Counting(executor, training.sharing.own_size), notes


def messages(world: Federation, **settings: Any) -> tuple[dict[str, float], Counting]:
    """The network's own account of two rounds, and the account of what was sent."""
    clients = world.clients
    assert isinstance(clients, LocalClients)
    counted = Counted(clients.data, clients.engine, clients.remember, clients.notes)
    on = OnNetwork(counted, Network(Link(1e6), Link(1e6), SimulatedClients(seconds=1.0), **settings))
    with replace(world, data=on) as there:
        state = there.start()
        for _ in range(2):
            state, _ = there.round(state)
        executor: Any = there.executor
        return executor.chronicle.site.measures(), executor._executor


@pytest.mark.parametrize(
    "name", some(METHODS, "fedavg", "scaffold-I", "feddyn", "mime", "mimelite-sgd", "fedfa", "fedmoswa-II")
)
def test_every_method_takes_what_it_sends(name: str) -> None:
    found, counted = messages(federation(method=METHODS[name], sampling=Uniform(3)))
    assert (found["bytes_down"], found["bytes_up"]) == (counted.down, counted.up)


@pytest.mark.parametrize("buffers", some(["average", "local", "local_norm"], "average", "local_norm"))
def test_statistics_travel_unless_they_stay(buffers: Any) -> None:
    found, counted = messages(with_norm(method=Scaffold(), sampling=Uniform(3), buffers=buffers))
    assert (found["bytes_down"], found["bytes_up"]) == (counted.down, counted.up)


def test_what_clients_keep_does_not_travel() -> None:
    found, counted = messages(personal(method=Scaffold(), sampling=Uniform(3)))
    assert (found["bytes_down"], found["bytes_up"]) == (counted.down, counted.up)
    assert counted.up == 2 * 3 * 2 * 8 * 76  # in each of two rounds three clients send two vectors


def test_messages_grow_with_the_length_that_a_model_is_said_to_have() -> None:
    mime, scaffold, fedavg = (
        messages(federation(method=method, sampling=Uniform(3)), bytes=1000)[0]
        for method in (Mime(), Scaffold(), FedAvg())
    )
    assert fedavg["bytes_down"] == fedavg["bytes_up"] == 6 * 1000
    assert scaffold["bytes_down"] == scaffold["bytes_up"] == 6 * 2000
    assert mime["bytes_up"] == 6 * 2000  # the gradient before the training, and the update
    assert mime["bytes_down"] == 6 * (1000 + 3000)  # the model; then the model, the momentum and the mean gradient


def test_a_longer_message_takes_longer() -> None:
    one, two = (
        messages(federation(method=method, sampling=FixedClients(((0,),))), bytes=1_000_000)[0]["time"]
        for method in (FedAvg(), Scaffold())
    )
    assert two - one == pytest.approx(2 * 2 * 1.0)  # one second more in each direction, in two rounds
