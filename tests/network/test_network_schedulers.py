"""The schedulers: their equations on models that are really trained, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from simpy import Environment
from torch import Tensor

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.engines import RayEngine
from fedsash.methods import FedAvg, FedProx, Scaffold
from fedsash.methods.sampling import Uniform
from fedsash.methods.server_optimisers import FedAdam, ServerSGD
from fedsash.network import (
    ConstantWindow,
    FedAsync,
    FedBuff,
    FedWindow,
    Learning,
    Link,
    Network,
    OnNetwork,
    SimulatedClients,
    Synchronous,
)
from fedsash.network.driver import check_asynchronous
from fedsash.network.learning import Start
from fedsash.network.schedulers import Scheduler
from fedsash.network.simulated import SimulatedSite, begin
from fedsash.network.vectors import Vector
from fedsash.server.broadcast import Broadcast
from fedsash.server.federation import Federation
from fedsash.testing import quadratic_federation
from support.by_default import full, rotated, some
from support.worlds import after, data, federation, identical

EVEN = Network(Link(1e9), clients=SimulatedClients(seconds=1.0))
"""No congestion to speak of."""
UNEVEN = Network(Link(1e4, 0.01), clients=SimulatedClients(seconds=1.0, spread=1.0, noise="exponential"))
FIVE = (7, 7, 7, 7, 7)
STEP = LocalTraining(lr=0.5, batch="full", steps=1)
"""Half of the way to the minimum of a quadratic whose curvature is 1."""


class Recording(Learning):
    """A learner that keeps its `world`, what each training began with and came to, and every global model."""

    def __init__(self, world: Federation) -> None:
        super().__init__(world, world.start(), None)
        self.world = world
        self.trips: list[tuple[int, Tensor, Tensor]] = []
        self.models: list[Tensor] = [self.state.w.clone()]

    def train(self, client: int, number: int, start: Start) -> Vector | None:
        w = super().train(client, number, start)
        assert w is not None
        self.trips.append((client, start.w.known.clone(), w.known.clone()))
        return w

    def move(self, w: Vector) -> None:
        super().move(w)
        self.models.append(self.state.w.clone())


def played(
    scheduler: Scheduler, rounds: int, network: Network = UNEVEN, world: Federation | None = None, **settings: Any
) -> tuple[Recording, SimulatedSite]:
    """A run of so many steps in a `world`: five equal clients, unless `settings` of the federation say otherwise."""
    world = world or federation(
        **{"data": data(FIVE), "sampling": Uniform(5), "local": LocalTraining(lr=0.1, batch=3)} | settings
    )
    with world:
        learner = Recording(world)
        site = begin(Environment(), network, learner, rounds=rounds, seed=1)
        site.env.process(scheduler.run(site))
        site.env.run(until=site.over)
    return learner, site


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "settings", [full({}), {"method": Scaffold(), "server": FedAdam(0.01)}, {"broadcast": Broadcast("w", 3)}]
)
def test_synchronous_without_congestion_is_the_federation_bit_for_bit(settings: dict[str, Any]) -> None:
    settings = {"averages": {"w": Window(3)}, "sampling": Uniform(4)} | settings
    world = federation(**settings)
    found = after(replace(world, data=OnNetwork(world.clients, UNEVEN)), 5)
    assert identical(found, after(federation(**settings), 5))


def test_a_deadline_makes_the_round_of_those_who_came() -> None:
    """Clients train in proportion to their samples; the two largest of six are late."""
    sizes = (7, 12, 3, 20, 9, 1)
    network = Network(Link(1e9), clients=SimulatedClients(seconds=sum(sizes) / 6))
    world = federation(data=data(sizes), sampling=Uniform(6))
    late = replace(world, data=OnNetwork(world.clients, network, Synchronous(deadline=9.5)))
    with late:
        state, outcome = late.round(late.start())
        found = late.chronicle.load(1).measures  # type: ignore[union-attr]
    assert outcome.missing == {1: "late", 3: "late"}
    assert (found["time"], found["arrived"], found["trips"]) == (9.5, 4, 6)
    with world:
        start = world.start()
        request = world.ask(start, ids=np.array([0, 2, 4, 5]))
        came, _ = world.server_round.step(start, request, world.collect(request))
    assert close(state.w, came.w)


@pytest.mark.parametrize("size, start", rotated([1, 2, 3, 4, 5], ["own", "newest"]))
def test_fedwindow_moves_by_what_entered_less_what_left_over_w(size: int, start: Any) -> None:
    learner, _ = played(FedWindow(ConstantWindow(size), start=start), 12)
    first = learner.models[0]
    window = [first] * size
    for t, (client, _, w) in enumerate(learner.trips):
        assert client == (size + t) % 5
        left = window.pop(0)
        window.append(w)
        assert close(learner.models[t + 1] - learner.models[t], (w - left) / size)
        assert close(learner.models[t + 1], sum(window, torch.zeros_like(w)) / size)


def test_an_empty_cache_is_of_the_first_w_clients_and_the_model_is_the_mean_of_the_uploads_that_came() -> None:
    learner, _ = played(FedWindow(ConstantWindow(3), cache="empty"), 9)
    uploads = [w for _, _, w in learner.trips]
    for t in range(9):
        there = uploads[max(t - 2, 0) : t + 1]
        assert close(learner.models[t + 1], sum(there, torch.zeros_like(there[0])) / len(there))
    assert [client for client, _, _ in learner.trips] == [3, 4, 0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize("start", ["own", "newest"])
def test_an_empty_cache_by_hand(start: Any) -> None:
    """Five clients go half of the way to 16, 32, ..., 80 in a trip, from 0; W = 2, so the first to enter is client 2.

    The window is {0, 1} without uploads. Client 2 enters from 0 and comes to 24, client 0 leaves with w = 24. Client 3
    comes to 32 from its own 0, or to 44 from the newest 24, client 1 leaves with the mean of 24 and that; and so on.
    """
    halfway = quadratic_federation([1.0] * 5, [16.0, 32.0, 48.0, 64.0, 80.0], local=STEP)
    learner, _ = played(FedWindow(ConstantWindow(2), start=start, cache="empty"), 5, world=halfway)
    came = {"own": [24.0, 32.0, 40.0, 20.0, 30.0], "newest": [24.0, 44.0, 57.0, 33.25, 38.5625]}[start]
    models = {"own": [24.0, 28.0, 36.0, 30.0, 25.0], "newest": [24.0, 34.0, 50.5, 45.125, 35.90625]}[start]
    assert [(client, float(w)) for client, _, w in learner.trips] == list(zip([2, 3, 4, 0, 1], came, strict=True))
    assert [float(w) for w in learner.models] == [0.0, *models]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_entering_clients_model_is_n_minus_w_minus_1_versions_old(size: int) -> None:
    learner, _ = played(FedWindow(ConstantWindow(size)), 15)
    for t in range(5, 15):
        assert torch.equal(learner.trips[t][1], learner.models[t - (5 - size - 1)])


@pytest.mark.parametrize("cache", ["initial", "empty"])
def test_with_w_4_of_5_own_and_newest_are_the_same_bit_for_bit(cache: Any) -> None:
    rules = [FedWindow(ConstantWindow(4), start=start, cache=cache) for start in ("own", "newest")]  # type: ignore[arg-type]
    own, newest = (played(rule, 12)[0] for rule in rules)
    assert all(torch.equal(a, b) for a, b in zip(own.models, newest.models, strict=True))


def test_with_the_newest_model_and_w_1_it_is_cyclic_sequential_training() -> None:
    learner, _ = played(FedWindow(ConstantWindow(1), start="newest"), 11)
    for t, (client, start, w) in enumerate(learner.trips):
        assert client == (t + 1) % 5 and torch.equal(start, learner.models[t]) and close(w, learner.models[t + 1])


def test_literal_w_1_is_n_minus_1_chains_that_never_meet() -> None:
    learner, _ = played(FedWindow(ConstantWindow(1)), 13)
    for t, (_, start, w) in enumerate(learner.trips):
        assert torch.equal(start, learner.models[max(t - 3, 0)]) and close(w, learner.models[t + 1])


@pytest.mark.parametrize("size, start", rotated([1, 2, 3, 4], ["own", "newest"]))
def test_a_mean_of_the_last_models_moves_by_2_over_2n_minus_w_minus_1_of_the_windows_mean_update(
    size: int, start: Any
) -> None:
    """With weights (1, ..., 1, 1, (W-1)/W, ..., 1/W), as many ones before as the entering client's model is old."""
    learner, _ = played(FedWindow(ConstantWindow(size), start=start), 20)
    age = 5 - size - 1 if start == "own" else 0
    weights = [1.0] * age + [1 - i / size for i in range(size)]
    updates = [w - begun for _, begun, w in learner.trips]
    share = 2 / (2 * 5 - size - 1) if start == "own" else 2 / (size + 1)

    def mean(t: int) -> Tensor:
        return sum(c * learner.models[t - m] for m, c in enumerate(weights)) / sum(weights)  # type: ignore[return-value]

    for t in range(10, 20):
        update = sum(updates[t - size + 1 : t + 1], torch.zeros_like(updates[0])) / size
        assert close(mean(t + 1) - mean(t), share * update)


def test_a_slide_by_w_replaces_the_whole_window() -> None:
    learner, site = played(FedWindow(ConstantWindow(2), slide=2), 6, EVEN)
    for t in range(6):
        (_, _, a), (_, _, b) = learner.trips[2 * t : 2 * t + 2]
        assert close(learner.models[t + 1], (a + b) / 2)
    assert site.log.trips == 12


def test_a_pipelined_window_keeps_w_clients_at_work() -> None:
    learner, site = played(FedWindow(ConstantWindow(2), pipelined=True, start="newest"), 40, EVEN)
    assert site.log.trips in (40, 41) and site.env.now == pytest.approx(20.0, rel=1e-3)
    for t in range(1, 40):
        assert close(learner.models[t + 1], (learner.trips[t - 1][2] + learner.trips[t][2]) / 2)


SCHEDULERS = {
    "fedwindow": FedWindow(ConstantWindow(3)),
    "pipelined": FedWindow(ConstantWindow(3), pipelined=True),
    "fedasync": FedAsync(),
    "fedbuff": FedBuff(3),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_clients_that_do_not_move_leave_the_model_where_it_is(name: str) -> None:
    learner, _ = played(SCHEDULERS[name], 8, local=LocalTraining(lr=0.0))
    assert all(close(w, learner.models[0]) for w in learner.models)


def test_fedasync_with_alpha_1_is_the_model_that_arrived_last() -> None:
    learner, _ = played(FedAsync(alpha=1.0), 12)
    assert all(torch.equal(learner.models[t + 1], w) for t, (_, _, w) in enumerate(learner.trips))


def test_fedasync_with_the_least_alpha_stays_where_it_is() -> None:
    learner, _ = played(FedAsync(alpha=5e-324), 12)
    assert all(torch.equal(w, learner.models[0]) for w in learner.models)


@pytest.mark.parametrize("weight", some(["constant", "polynomial", "hinge"], "polynomial"))
def test_fedasync_mixes_by_the_versions_between(weight: Any) -> None:
    rule = FedAsync(alpha=0.6, weight=weight, a=0.5 if weight == "polynomial" else 10.0, b=2)
    learner, site = played(rule, 25)
    stale = []
    for t, (_, start, w) in enumerate(learner.trips):
        tau = max(v for v in range(t + 1) if torch.equal(start, learner.models[v]))
        stale.append(t - tau)
        x = t - tau
        s = {"constant": 1.0, "polynomial": (x + 1) ** -0.5, "hinge": 1.0 if x <= 2 else 1 / (10 * (x - 2) + 1)}[weight]
        assert close(learner.models[t + 1], (1 - 0.6 * s) * learner.models[t] + 0.6 * s * w)
    assert sum(stale) / len(stale) == site.log.staleness / site.log.arrived and max(stale) > 2


def test_a_lone_clients_staleness_is_0() -> None:
    _, site = played(FedAsync(), 6, data=data((9,)), sampling=Uniform(1))
    assert site.log.arrived == 6 and site.log.staleness == 0


def test_fedbuff_of_all_clients_from_one_version_is_uniform_fedavg() -> None:
    sizes = (7, 12, 3, 20, 9)
    same = {"data": data(sizes), "local": LocalTraining(lr=0.1, batch=3), "sampling": Uniform(5)}
    at_once = Network(Link(1e9), clients=SimulatedClients(seconds=0.0))
    learner, site = played(FedBuff(5), 4, at_once, **same)
    assert site.log.staleness == 0
    assert close(learner.state.w, after(federation(method=FedAvg(weighting="uniform"), **same), 4).w)


def test_fedbuff_of_one_with_no_staleness_is_the_clients_model() -> None:
    learner, _ = played(FedBuff(1), 5, data=data((9,)), sampling=Uniform(1))
    assert all(close(learner.models[t + 1], w) for t, (_, _, w) in enumerate(learner.trips))


def test_fedbuff_weighs_each_update_by_its_own_staleness() -> None:
    learner, _ = played(FedBuff(2, lr=0.5), 10)
    for t in range(10):
        total = torch.zeros_like(learner.models[0])
        for _, start, w in learner.trips[2 * t : 2 * t + 2]:
            tau = max(v for v in range(t + 1) if torch.equal(start, learner.models[v]))
            total += (1 + t - tau) ** -0.5 * (w - start)
        assert close(learner.models[t + 1], learner.models[t] + 0.5 * total / 2)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_window_of_models_is_observed_on_any_scheduler(name: str) -> None:
    learner, _ = played(SCHEDULERS[name], 9, averages={"w": Window(4)})
    assert close(learner.world.models(learner.state)["w"], torch.stack(learner.models[-4:]).mean(0))


@pytest.mark.parametrize("name", ["pipelined", "fedasync", "fedbuff"])
def test_a_fed_window_is_what_clients_are_sent(name: str) -> None:
    scheduler = SCHEDULERS[name]
    scheduler = replace(scheduler, start="newest") if isinstance(scheduler, FedWindow) else scheduler
    learner, _ = played(scheduler, 14, averages={"w": Window(3)}, broadcast=Broadcast("w", 3))
    means = [torch.stack(learner.models[t - 2 : t + 1]).mean(0) for t in range(3, 15)]
    _, start, _ = learner.trips[-1]
    assert any(close(start, mean) for mean in means) and not any(close(start, w) for w in learner.models)


def test_no_client_draws_the_same_batches_twice() -> None:
    """From the same model a client's next training comes to another one."""
    learner, _ = played(FedAsync(alpha=5e-324), 12, EVEN)
    ends = [w for client, _, w in learner.trips if client == 0]
    assert len(ends) > 1 and all(not torch.equal(a, ends[0]) for a in ends[1:])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"method": Scaffold()}, r"^method = 'Scaffold'"),
        ({"server": FedAdam(0.1)}, r"^server = "),
        ({"engine": RayEngine()}, r"^engine = 'RayEngine': sums up uploads"),
        ({}, ""),
    ],
)
def test_what_has_a_meaning_in_rounds_only_is_refused_elsewhere(settings: dict[str, Any], line: str) -> None:
    if line:
        with pytest.raises(ValueError, match=line):
            check_asynchronous(federation(**{"sampling": Uniform()} | settings))
    else:
        check_asynchronous(federation(method=FedProx(mu=0.1), server=ServerSGD(), sampling=Uniform()))
