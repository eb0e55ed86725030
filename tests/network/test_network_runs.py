"""Runs on a network: their files, their sums, their randomness, and what can go wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simpy import Environment

from fedsash.client import LocalTraining
from fedsash.client.messages import Ended
from fedsash.lab import timing
from fedsash.lab.config import parse
from fedsash.lab.timing import TimeStudy
from fedsash.methods import Mime
from fedsash.methods.sampling import FixedClients, Uniform
from fedsash.network import (
    AIMDWindow,
    Asynchronous,
    ConstantWindow,
    FedAsync,
    FedBuff,
    FedWindow,
    Link,
    Network,
    OnNetwork,
    SimulatedClients,
    Synchronous,
    Timing,
)
from fedsash.network.clients import Population
from fedsash.network.schedulers import Scheduler
from fedsash.network.simulated import begin
from fedsash.settings.errors import SettingError
from support.by_default import full
from support.experiments import trained
from support.worlds import federation, quadratic_federation

SCHEDULERS = {
    "synchronous": Synchronous(),
    "deadline": Synchronous(deadline=15.0),
    "fedwindow": FedWindow(ConstantWindow(3)),
    "pipelined": FedWindow(ConstantWindow(12), pipelined=True),
    "fedasync": FedAsync(),
    "fedbuff": FedBuff(4),
}
ROUGH: dict[str, Any] = {"timeout": 3.0, "retries": 1, "bytes": 1000, "learning": False}
COMING = SimulatedClients(
    20, seconds=1.0, spread=0.5, stragglers=0.2, noise="exponential", rate=5000.0, on=40.0, off=20.0
)


def timed(scheduler: Scheduler, on: Network, rounds: int = 60, seed: int = 0, **settings: Any) -> TimeStudy:
    learner = Timing(on.clients.count, on.bytes or 1000, Uniform(fraction=1.0), seed)
    return timing.simulate(on, scheduler, learner, rounds=rounds, seed=seed, **settings)


@pytest.mark.parametrize("sharing", ["fair", "first-come"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_all_bytes_and_trips_are_accounted_for_on_a_rough_network(name: str, sharing: Any) -> None:
    on = Network(Link(2000.0, 0.1, sharing, limit=6), Link(50_000.0, 0.1), COMING, **ROUGH)
    result = timed(SCHEDULERS[name], on, 30)
    found, intervals = result.summary["network"], result.timeline["intervals"]
    assert result.summary["rounds"] == 30 and found["trips"] >= found["arrived"]
    assert found["failed_uploads"] > 0 or name == "fedwindow"  # which never has two uploads at a time
    assert found["link_use"] <= 1
    carried = found["link_use"] * found["time"] * 2000.0
    assert found["arrived"] * 1000 <= carried + 1e-6
    # what has left for trips that are not over yet is on its way
    assert 0 <= carried - found["bytes_up"] + 1e-6 <= 6 * 1000 + 1e-6
    busy: dict[int, float] = {}
    for client, _, began, ended in intervals:
        assert busy.get(client, 0.0) <= began <= ended
        busy[client] = ended


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_run_is_a_pure_function_of_its_seed(name: str) -> None:
    on = Network(Link(4000.0, 0.1), clients=COMING, **ROUGH)
    first, again, other = (timed(SCHEDULERS[name], on, seed=seed) for seed in (1, 1, 2))
    assert first.timeline == again.timeline and first.history.rows() == again.history.rows()
    assert first.timeline != other.timeline


def test_without_congestion_nobody_waits() -> None:
    on = Network(Link(1e12), clients=SimulatedClients(50, seconds=3.0), **ROUGH)
    found = timed(FedAsync(), on).summary["network"]
    assert found["waiting"] < 1e-6 and found["failed_uploads"] == 0


def test_one_client_alone_takes_exactly_its_own_time() -> None:
    """Download latency, training, its own link, the shared link, latency."""
    on = Network(Link(100.0, 0.5), clients=SimulatedClients(1, seconds=3.0, rate=50.0), bytes=1000, learning=False)
    found = timed(FedAsync(), on, rounds=4).summary["network"]
    assert found["time"] == pytest.approx(4 * (0.5 + 3.0 + 20.0 + 10.0 + 0.5))
    assert found["waiting"] == 0 and found["link_use"] == pytest.approx(40 / found["time"])


def test_presence_is_the_markov_process_that_was_asked_for() -> None:
    """A share on / (on + off) there, to within 4 standard errors of independent clients; stays of mean `on`."""
    clients = SimulatedClients(2000, on=30.0, off=10.0)
    presence = Population(clients, Timing(2000, 1, Uniform(1), 0).samples, seed=5).presence()
    for now in (0.0, 17.0, 400.0):
        share = sum(presence.returns(i, now) <= now for i in range(2000)) / 2000
        assert abs(share - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 2000)
    stays = [presence.leaves(i, 400.0) - 400.0 for i in range(2000) if presence.returns(i, 400.0) <= 400.0]
    assert abs(sum(stays) / len(stays) - 30.0) < 4 * 30.0 / math.sqrt(len(stays))


def test_a_trace_says_who_works_when(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("1,0\n1,0\n0,1\n1,1\n")
    on = Network(
        Link(1e9), clients=SimulatedClients(2, seconds=2.0, trace=str(trace), step=5.0), bytes=1, learning=False
    )
    result = timed(FedAsync(), on, rounds=30)
    for client, what, began, ended in result.timeline["intervals"]:
        if what != "wait":
            away = {0: [(10, 15)], 1: [(0, 10)]}[client]
            assert not any(began % 20 < until and (ended - 1e-9) % 20 > since for since, until in away if ended > began)
    assert result.summary["network"]["trips"] > result.summary["network"]["arrived"] == 30


def test_a_study_that_can_not_begin_leaves_nothing_behind(tmp_path: Path) -> None:
    on = Network(Link(1e9), clients=SimulatedClients(2, trace=str(tmp_path / "no.npy")), bytes=1, learning=False)
    with pytest.raises(ValueError, match=r"no\.npy"):
        timing.simulate(on, Synchronous(), Timing(2, 1), rounds=3, out=tmp_path / "out", config={"rounds": 3})
    assert not (tmp_path / "out").exists()


def test_a_client_that_never_comes_back_does_not_end_the_rounds_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("0,1,1,1,1,1\n")
    on = Network(Link(1e9), clients=SimulatedClients(6, trace=str(tmp_path / "trace.csv")), bytes=1)
    plain = federation(sampling=Uniform(1))
    missing: set[int] = set()
    with replace(plain, data=OnNetwork(plain.clients, on)) as world:
        state = world.start()
        for _ in range(12):
            state, report = world.round(state)
            missing |= report.missing.keys()
    assert missing == {0}


def test_a_round_ends_at_its_deadline_also_where_nobody_is_there_who_is_asked(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("0,1\n" * 9 + "1,1\n")
    clients = SimulatedClients(2, trace=str(tmp_path / "trace.csv"), step=100.0)
    on = Network(Link(1e9), clients=clients, bytes=1, learning=False)
    learner = Timing(2, 1, FixedClients(((0,),)), 0)
    found = timing.simulate(on, Synchronous(deadline=5.0), learner, rounds=3, seed=0)
    assert found.summary["network"]["time"] == 15


@pytest.mark.parametrize("name", SCHEDULERS)
def test_where_nobody_ever_is_the_run_ends_and_says_so(name: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("0,0,0,0\n")
    on = Network(Link(1.0), clients=SimulatedClients(4, trace=str(trace)), bytes=1, learning=False)
    scheduler = FedWindow(ConstantWindow(2), pipelined=True) if name == "pipelined" else SCHEDULERS[name]
    result = timed(scheduler, on, 10)
    assert result.summary["ended_early"] == "no client will ever be present again"
    assert result.summary["network"]["trips"] == 0


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "pipelined"])
def test_where_all_uploads_fail_the_run_ends_all_the_same(name: str) -> None:
    on = Network(Link(100.0), clients=SimulatedClients(4), bytes=1000, timeout=1.0, learning=False)
    result = timed(SCHEDULERS[name], on, 5000)
    assert result.summary["network"]["arrived"] == 0 and result.summary["network"]["failed_uploads"] >= 1000
    assert "no upload has arrived" in result.summary["ended_early"]


@pytest.mark.parametrize(("clients", "patience"), [(4, 1000), (1500, 1500)])
def test_a_run_ends_after_a_thousand_trips_in_a_row_without_an_upload_or_one_for_each_client(
    clients: int, patience: int
) -> None:
    on = Network(Link(1e6), clients=SimulatedClients(clients), bytes=1000, learning=False)
    site = begin(Environment(), on, Timing(clients, 1000), rounds=10, seed=0)
    for arrived in (False, True, False):
        assert site.running
        for _ in range(1 if arrived else patience - 1):
            trip = site._begin(0, site.newest())
            trip.arrived = arrived
            site._end(trip)
    assert site.running
    site._end(site._begin(0, site.newest()))
    assert not site.running and site.why == f"no upload has arrived in {patience} trips"


def test_a_run_ends_when_its_time_is_over() -> None:
    on = Network(Link(1e6), clients=SimulatedClients(4), bytes=1000, seconds=7.5, learning=False)
    result = timed(FedAsync(), on, 5000)
    assert result.summary["network"]["time"] == 7.5 and result.summary["ended_early"] == "its simulated time was over"


@pytest.mark.slow
def test_a_hundred_thousand_clients_are_simulated_in_time() -> None:
    """At four fifths of the link's capacity: 20,000 trips in well under the minute that millions of events may take."""
    clients = SimulatedClients(100_000, seconds=1000.0, spread=0.3, noise="exponential")
    on = Network(Link(125_000.0), clients=clients, bytes=1000, timeout=60.0, learning=False)
    result = timed(FedAsync(), on, rounds=20_000)
    assert result.summary["network"]["arrived"] >= 20_000 and result.summary["seconds"] < 60


def test_the_gradient_is_that_of_the_mean_training_loss() -> None:
    """For softmax on the model's outputs, by autograd on all samples at once."""
    table = {
        "rounds": 2,
        "partition": {"name": "shards", "clients": 3, "classes": 2},
        "model": {"name": "mlp", "hidden": [4]},
        "evaluation": {"every": 1},
        "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
        "network": {"gradients": True},
    }
    experiment = parse(table)
    found = [row["gradient_norm"] for row in trained(experiment).history.rows() if row["split"] == "network"]
    federation = experiment.federation()
    state = federation.start()
    for norm in found:
        state, _ = federation.round(state)
        data, module = federation.data, federation.model
        index = torch.from_numpy(np.concatenate(data.clients))
        with federation.layout.applied(module, state.w):
            x = data.transform.prepare(data.train.x[index])  # type: ignore[index]
            loss = torch.nn.functional.cross_entropy(module(x), data.train.y[index])
            grads = torch.autograd.grad(loss, list(module.parameters()))
        assert norm == pytest.approx(math.sqrt(sum(float(g.square().sum()) for g in grads)), rel=1e-4)
    federation.close()


def test_a_study_of_time_alone_has_no_gradients() -> None:
    with pytest.raises(ValueError, match="gradients = True: must be false with learning"):
        Network(clients=SimulatedClients(3), bytes=1000, learning=False, gradients=True)


@pytest.mark.parametrize("scheduler", [full(FedAsync()), FedBuff(2), full(FedWindow(ConstantWindow(2)))], ids=type)
def test_a_run_whose_clients_all_diverge_ends_and_says_so(scheduler: Scheduler) -> None:
    wild = quadratic_federation([1.0] * 3, [0.0] * 3, start=1.0, local=LocalTraining(lr=1e3, batch="full", steps=5))
    with wild, pytest.raises(Ended, match="no upload could be used in 100"):
        Asynchronous(wild, Network(), scheduler).round(wild.start())


def test_a_probe_that_lasts_until_the_deadline_leaves_no_time_below_zero() -> None:
    """1.07 + (3.1 - 1.07) is a little more than 3.1."""
    clients = SimulatedClients(seconds=0.1, stragglers=0.4, slower=1000.0)
    on = Network(Link(1e6, latency=1.07), clients=clients)
    plain = federation(method=Mime(), sampling=Uniform(fraction=1.0))
    with replace(plain, data=OnNetwork(plain.clients, on, Synchronous(deadline=3.1))) as world:
        assert set(world.round(world.start())[1].missing.values()) == {"late"}


@pytest.mark.parametrize("name", ["empty.npy", "empty.csv"])
def test_a_trace_without_rows_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    on = Network(clients=SimulatedClients(1, trace=str(tmp_path / name)), bytes=1, learning=False)
    with pytest.raises(SettingError, match=r"SimulatedClients.trace = .*empty"):
        timed(FedAsync(), on)


def test_a_limit_downwards_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Network.down.limit = 5: must be left out"):
        Network(down=Link(10.0, limit=5))


def test_a_window_that_shrinks_goes_on_with_those_who_are_there(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("1,1,1,1,0,0,0,0\n")
    clients = SimulatedClients(8, trace=str(tmp_path / "trace.csv"), noise="exponential")
    on = Network(Link(8.0), clients=clients, bytes=1, timeout=0.3, learning=False)
    found = timed(FedWindow(AIMDWindow(start=1), pipelined=True), on, 200).summary
    assert found["rounds"] == 200 and not found["ended_early"]
