"""Clients that come and go, ties of time, and settings that would have no effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simpy import Environment

from fedsash.client import RoundPlan, Trainer
from fedsash.client.messages import Reply
from fedsash.lab import timing
from fedsash.lab.timing import TimeStudy
from fedsash.methods import WeightedMean
from fedsash.methods.sampling import FixedClients, Sampling, Uniform
from fedsash.network import (
    AIMDWindow,
    Asynchronous,
    CapacityWindow,
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
from fedsash.network.clients import Presence
from fedsash.network.schedulers import Scheduler
from fedsash.network.simulated import SimulatedSite, begin
from fedsash.network.trip import Trip
from fedsash.server.round import ServerRound
from fedsash.settings.errors import FedsashError, SettingError
from support.observing import Crash, failing, go_on, observed, rows, start
from support.worlds import data, federation

SIZES = (7, 7, 7, 7, 7)


def timed(scheduler: Scheduler, on: Network, rounds: int = 20) -> TimeStudy:
    learner = Timing(on.clients.count, on.bytes or 1, Uniform(fraction=1.0), 0)
    return timing.simulate(on, scheduler, learner, rounds=rounds, seed=0)


def traced(lines: list[str], tmp_path: Path, step: float = 1.0) -> Network:
    """Clients that are present as the lines say, one for each step of time."""
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(lines) + "\n")
    clients = SimulatedClients(lines[0].count(",") + 1, trace=str(trace), step=step)
    return Network(Link(1e9), clients=clients, bytes=1, learning=False)


def test_a_pipelined_window_sees_every_client_that_comes_back(tmp_path: Path) -> None:
    """Client 0 is never there, client 1 for ten seconds out of twenty."""
    on = traced(["0,1", "0,0"], tmp_path, step=10.0)
    times = [
        timed(scheduler, on).summary["network"]["time"]
        for scheduler in (FedAsync(), *(FedWindow(ConstantWindow(size), pipelined=True) for size in (1, 2)))
    ]
    assert times[0] == pytest.approx(times[1]) == pytest.approx(times[2])


@pytest.mark.parametrize("slide", [3, 4])
def test_a_slide_by_more_clients_than_there_are_goes_on_with_those(slide: int, tmp_path: Path) -> None:
    result = timed(FedWindow(ConstantWindow(4), slide=slide), traced(["1,1,1,0,0"], tmp_path))
    assert result.summary["rounds"] == 20 and not result.summary["ended_early"]


def test_a_client_that_is_sent_its_model_when_it_leaves_waits_for_it() -> None:
    """With W = N - 1 the client that leaves enters next: both readings send the same models at the same time."""
    on = Network(Link(1e9), Link(1000.0), SimulatedClients(5, seconds=1.0), bytes=10_000, learning=False)
    own, newest = (timed(FedWindow(ConstantWindow(4), start=s), on).summary["network"] for s in ("own", "newest"))  # type: ignore[arg-type]
    assert newest["time"] == pytest.approx(20 * (10 + 1))
    assert own["time"] == pytest.approx(20 * (10 + 1) - 10), "the first client has its model"


@pytest.mark.parametrize("sharing", ["fair", "first-come"])
@pytest.mark.parametrize("uploads", [1, 2, 5])
@pytest.mark.parametrize("limit", ["timeout", "deadline"])
def test_an_upload_that_takes_just_the_time_it_may_take_arrives(limit: str, uploads: int, sharing: Any) -> None:
    longest = float(uploads)
    clients = SimulatedClients(uploads, seconds=0.0)
    timeout = longest if limit == "timeout" else None
    on = Network(Link(1.0, sharing=sharing), clients=clients, bytes=1, timeout=timeout, learning=False)
    scheduler = Synchronous(deadline=longest if limit == "deadline" else None)
    found = timed(scheduler, on, rounds=1).summary["network"]
    assert (found["arrived"], found["failed_uploads"]) == (uploads, 0)


def test_who_is_late_has_not_failed() -> None:
    """Without a timeout or a limit no attempt can fail, whatever the clock rounds."""
    clients = SimulatedClients(20, seconds=1.0, spread=0.3)
    on = Network(Link(7.0), clients=clients, bytes=1, learning=False)
    assert timed(Synchronous(deadline=3.1), on, rounds=50).summary["network"]["failed_uploads"] == 0


def test_many_retries_wait_no_time_without_a_back_off() -> None:
    clients = SimulatedClients(1, seconds=0.0)
    on = Network(Link(1.0), clients=clients, bytes=2, timeout=1.0, retries=2000, backoff=0.0, learning=False)
    site = begin(Environment(), on, Timing(1, 2), rounds=1, seed=0)
    process = site.env.process(site.trip(0, site.newest()))
    site.env.run(until=process)
    assert site.env.now == 2001.0 and process.value.failures == 2001


def stopped_at(version: int, on: Network) -> tuple[Asynchronous, Any]:
    made = Asynchronous(federation(data=data(SIZES), sampling=Uniform(5)), on, FedBuff(2))
    state = made.federation.start()
    for _ in range(version):
        state, _ = made.round(state)
    return made, state


EVEN = Network(Link(1e6), clients=SimulatedClients(seconds=1.0, spread=0.5))


def test_a_driver_can_be_started_again() -> None:
    made, first = stopped_at(3, EVEN)
    state = made.federation.start()
    for _ in range(3):
        state, _ = made.round(state)
    assert torch.equal(state.w, first.w)


@pytest.mark.parametrize("call", [1, 2])
def test_a_round_in_which_a_client_fails_can_be_made_again(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, state = stopped_at(3, EVEN)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        failing(Trainer, "answer", call, "before", patch)
        made.round(state)
    again, _ = made.round(state)
    assert torch.equal(again.w, stopped_at(4, EVEN)[1].w)


@pytest.mark.parametrize(
    "when, line",
    [
        ("before", r"state\.round = 3: must be 0"),
        ("after", "the state after 3 rounds was used up by the round after it"),
    ],
)
def test_a_round_in_which_averages_have_observed_is_not_made_again(
    when: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, state = stopped_at(3, EVEN)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        failing(ServerRound, "observe", 1, when, patch)
        made.round(state)
    with pytest.raises(FedsashError, match=line):
        made.round(state)


@pytest.mark.parametrize(
    "sampling",
    [Uniform(5, dropout=0.5), Uniform(5, trace=torch.ones(1, 5).numpy()), Uniform(4), FixedClients(((0, 1),))],
    ids=str,
)
def test_who_trains_is_the_schedulers_affair(sampling: Sampling) -> None:
    with pytest.raises(SettingError, match="an asynchronous scheduler says itself who trains"):
        Asynchronous(federation(data=data(SIZES), sampling=sampling), EVEN, FedAsync())


@pytest.mark.parametrize("scheduler", [FedAsync(), Synchronous()], ids=type)
def test_another_trace_in_the_same_file_is_refused_when_a_run_goes_on(scheduler: Scheduler, tmp_path: Path) -> None:
    on = traced(["1,1,1,1,1"], tmp_path)
    learns = Network(Link(1e6), clients=SimulatedClients(trace=on.clients.trace))

    def made() -> Any:
        world = observed(data=data(SIZES), sampling=Uniform(5))
        if isinstance(scheduler, Synchronous):
            return observed(data=OnNetwork(world.clients, learns, scheduler), sampling=Uniform(5))
        return Asynchronous(world, learns, scheduler)

    start(made(), 4, tmp_path / "run")
    traced(["1,1,1,0,1"], tmp_path)
    with pytest.raises(ValueError, match="network is"):
        go_on(made(), 6, tmp_path / "run")


def test_who_does_not_answer_an_asynchronous_scheduler_is_named(tmp_path: Path) -> None:
    on = Network(Link(1e6), clients=SimulatedClients(on=3.0, off=3.0))
    start(Asynchronous(observed(data=data(SIZES), sampling=Uniform(5)), on, FedAsync()), 12, tmp_path)
    guard = [row for row in rows(tmp_path) if row["split"] == "guard"]
    assert {why for row in guard for why in row["missing"].values()} == {"went away"}


def site_of(on: Network) -> SimulatedSite:
    return begin(Environment(), on, Timing(on.clients.count, on.bytes or 1), rounds=10**9, seed=0)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_capacity_that_is_a_whole_number_is_not_rounded_down(seed: int) -> None:
    """T is a mean over clients: 5.0 but for rounding, whatever their sizes."""
    cuts = torch.randperm(280, generator=torch.Generator().manual_seed(seed))[:4].sort().values.tolist()
    samples = torch.tensor([b - a for a, b in zip([0, *cuts], [*cuts, 281], strict=True)]).clamp(min=1).numpy()
    on = Network(Link(1e4), clients=SimulatedClients(5, seconds=5.0), bytes=10_000, learning=False)
    site = begin(Environment(), on, Timing(5, 10_000, samples=samples), rounds=1, seed=0)
    assert CapacityWindow().begin(site).size == 5


def test_who_waits_for_a_client_finds_it_there_whatever_the_clock_rounds() -> None:
    """Of these two times the first and the difference add up to just below the second."""
    site = site_of(Network(Link(1.0), clients=SimulatedClients(1), bytes=1, learning=False))
    now, back = 0.5 + 2.0**-53, 1.5 + 2.0**-52
    assert now + (back - now) < back
    site.presence = ComesBack(back)
    site.env.run(until=now)
    site.env.run(until=site.env.process(site.wait([0])))
    assert site.env.now == back


class ComesBack(Presence):
    """Clients that come back at a time."""

    def __init__(self, back: float) -> None:
        self.back = back

    def returns(self, client: int, now: float) -> float:
        return max(self.back, now)


def test_a_trip_that_begins_with_a_cut_can_cut_again() -> None:
    on = Network(Link(1.0), clients=SimulatedClients(8), bytes=1, learning=False)
    site = site_of(on)
    control = AIMDWindow(8).begin(site)
    before, at_once = (Trip(client, 0, site.newest(), began) for client, began in ((0, -1.0), (1, site.env.now)))
    before.failures = at_once.failures = 1
    control.heard(before)
    control.heard(before)
    assert control.size == 4
    control.heard(at_once)
    assert control.size == 2


def test_refused_uploads_count_among_the_samples_that_were_trained_on() -> None:
    """As in rounds. The limit lets half of the first uploads through."""
    plain = federation(data=data(SIZES), sampling=Uniform(fraction=1.0))
    with plain:
        norms = [
            float(reply.norms) for reply in plain.executor.work(plain.ask(plain.start())) if isinstance(reply, Reply)
        ]
    world = replace(plain, aggregation=WeightedMean(limit=float(np.median(norms))))
    made = Asynchronous(world, Network(Link(1e6)), FedBuff(3))
    with world:
        state = made.federation.start()
        made.prepare(None, state)
        _, report = made.round(state)
    assert (
        report.refused
        and report.samples == RoundPlan.mean(world.local, world.method, world.sizes).samples[report.clients].sum()
    )
