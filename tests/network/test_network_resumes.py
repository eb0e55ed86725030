"""Runs on a network that are stopped, by whatever it is, go on as if they had not been."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash import Broadcast, Evaluation, Federation
from fedsash.client import LocalTraining, Trainer
from fedsash.methods import Mime, Scaffold, WeightedMean
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Exponential
from fedsash.methods.server_optimisers import FedAdam
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
)
from fedsash.network.schedulers import Scheduler
from fedsash.runs import Driver
from fedsash.server.round import ServerRound
from fedsash.vector.saved import saved_rounds
from support.by_default import full, some
from support.observing import Crash, Evaluated, crash_at, failing, final, go_on, interrupting, observed, rows, start
from support.script import Script, tell
from support.worlds import data, federation, identical, record

SIZES = (7, 12, 3, 20, 9, 1, 8, 8)
ROUGH = Network(
    Link(2500.0, 0.1, limit=3),
    Link(50_000.0, 0.1),
    SimulatedClients(spread=0.5, stragglers=0.2, noise="exponential", rate=5000.0, on=12.0, off=6.0),
    bytes=1000,
    timeout=3.0,
    retries=1,
)
CALM = Network(Link(1e4, 0.01), clients=SimulatedClients(spread=1.0), bytes=1000)
LOCAL = LocalTraining(lr=0.1, batch=5, epochs=2)
FED: dict[str, Any] = {"broadcast": Broadcast("window", start=4)}
ADAPTIVE: dict[str, Any] = {
    "broadcast": Broadcast(("window", "ema"), start="auto", patience=1),
    "evaluation": Evaluation(every=1, last=1, held_out=0.3),
}
CASES: dict[str, tuple[Scheduler, Network, dict[str, Any]]] = {
    "synchronous": (Synchronous(), ROUGH, {"method": Scaffold(), "server": FedAdam(0.1)}),
    "deadline": (Synchronous(deadline=2.0), ROUGH, FED | {"sampling": Uniform(5)}),
    "probes": (Synchronous(deadline=4.0), ROUGH, {"method": Mime()}),
    "own": (FedWindow(ConstantWindow(3)), ROUGH, {}),
    "newest": (FedWindow(ConstantWindow(2), start="newest", cache="empty"), CALM, FED),
    "slide": (FedWindow(ConstantWindow(3), slide=2), ROUGH, {}),
    "aimd": (FedWindow(AIMDWindow(3, delay=2.0), pipelined=True), ROUGH, {}),
    "fedasync": (FedAsync(weight="polynomial"), ROUGH, FED),
    "fedbuff": (FedBuff(3), ROUGH, ADAPTIVE),
    "by steps": (FedBuff(3, schedule_counts="steps"), ROUGH, {"local": replace(LOCAL, schedule=Exponential(0.9))}),
    "guard": (FedBuff(2), ROUGH, {"aggregation": WeightedMean(limit=0.25)}),
    "guarded ring": (FedWindow(ConstantWindow(3)), CALM, {"aggregation": WeightedMean(limit=0.25)}),
}


def driver(name: str, on: Network | None = None, world_of: Any = observed, **settings: Any) -> Any:
    """A federation of eight clients on the network of a case."""
    scheduler, network, own = CASES[name]
    world = world_of(**{"data": data(SIZES), "sampling": Uniform(8), "local": LOCAL} | own | settings)
    if isinstance(scheduler, Synchronous):
        return replace(world, data=OnNetwork(world.clients, on or network, scheduler))
    return Asynchronous(world, on or network, scheduler)


def everything(folder: Path) -> dict[str, bytes]:
    """The bytes in which a stopped run must not differ, with what happened on the network."""
    return final(folder) | {"timeline": (folder / "timeline.json").read_bytes()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_run_stopped_several_times_is_the_run_that_was_not(name: str, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    start(driver(name), 12, whole, every=2)
    go: Any = start
    for crash in (1, 4, 5, 11):
        with pytest.raises(Crash):
            go(driver(name), 12, stopped, every=2, callbacks=[crash_at(crash)])
        go = go_on
    assert not go_on(driver(name), 12, stopped, every=2).interrupted
    assert everything(stopped) == everything(whole)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (whole, stopped)]
    assert summaries[0]["network"] == summaries[1]["network"]
    refused = [row for row in rows(whole) if row["split"] == "guard" and row["refused"]]
    assert bool(refused) == ("guard" in name)


@pytest.mark.parametrize("name", ["synchronous", "probes", "fedbuff"])
def test_a_report_has_the_number_of_its_round(name: str) -> None:
    made = driver(name)
    with made.federation as world:
        state = world.start()
        for number in (1, 2, 3):
            state, report = made.round(state)
            assert report.round == state.round == number


FAULTS = [
    (Trainer, "answer", "before"),
    (ServerRound, "observe", "before"),
    (Federation, "evaluate", "after"),
    (Trainer, "answer", "after"),
    (ServerRound, "observe", "after"),
    (Federation, "learn", "after"),
]


@pytest.mark.parametrize("name", some(["probes", "own", "guard", "fedbuff"], "fedbuff"))
def test_an_exception_anywhere_loses_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped, go = tmp_path / "whole", tmp_path / "stopped", start
    start(driver(name), 8, whole, every=3)
    for number, (owner, method, when) in enumerate(FAULTS):
        with monkeypatch.context() as patched, pytest.raises(Crash):
            failing(owner, method, 1 + number % 2, when, patched)
            go(driver(name), 8, stopped, every=3)
        go = go_on if (stopped / "metrics.jsonl").exists() else start
    go(driver(name), 8, stopped, every=3)
    assert everything(stopped) == everything(whole)


@pytest.mark.parametrize("name", some(["own", "fedbuff"], "fedbuff"))
def test_a_step_that_an_exception_has_ended_can_be_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, whole = driver(name), driver(name)
    with world.federation, whole.federation:
        state, right = world.federation.start(), whole.federation.start()
        for _ in range(3):
            state, right = world.round(state)[0], whole.round(right)[0]
        state = world.saved(state)
        with monkeypatch.context() as patched, pytest.raises(Crash):
            failing(Trainer, "answer", 1, "before", patched)
            world.round(state)
        for _ in range(3):
            state, right = world.round(state)[0], whole.round(right)[0]
        assert identical(world.saved(state), whole.saved(right))
        assert world.chronicle.load(6).measures == whole.chronicle.load(6).measures


@pytest.mark.parametrize("name", some(["deadline", "own", "aimd", "fedasync"], "aimd"))
def test_a_longer_run_goes_on_from_a_shorter_one(name: str, tmp_path: Path) -> None:
    """With evaluations that do not depend on the length."""
    often = Evaluation(every=2, last=1)
    start(driver(name, evaluation=often), 8, tmp_path / "whole")
    start(driver(name, evaluation=often), 4, tmp_path / "short")
    go_on(driver(name, evaluation=often), 8, tmp_path / "short")
    assert everything(tmp_path / "short") == everything(tmp_path / "whole")


@pytest.mark.parametrize("name", some(["deadline", "aimd", "fedbuff"], "fedbuff"))
def test_going_on_with_a_run_that_is_done_changes_nothing(name: str, tmp_path: Path) -> None:
    start(driver(name), 4, tmp_path)
    before = everything(tmp_path), json.loads((tmp_path / "summary.json").read_text())["network"]
    assert not go_on(driver(name), 4, tmp_path).interrupted
    assert (everything(tmp_path), json.loads((tmp_path / "summary.json").read_text())["network"]) == before


@pytest.mark.parametrize("name", some(["deadline", "probes", "own", "fedbuff"], "probes"))
def test_a_run_whose_time_is_over_says_so_and_goes_on_to_the_same_end(name: str, tmp_path: Path) -> None:
    """Also from the state in which it ended, between two steps. Its last models are evaluated, though `every` is 4."""

    def short() -> Any:
        return driver(name, replace(CALM, seconds=15.3), evaluation=Evaluation(every=4, last=1, held_out=0.3))

    result = start(short(), 1000, tmp_path / "whole")
    assert not result.interrupted and 2 < result.state.round < 1000 and result.state.round % 4
    assert result.summary["ended_early"] == "its simulated time was over" and result.summary["network"]["time"] == 15.3
    assert max(row["round"] for row in rows(tmp_path / "whole") if row["split"] == "test") == result.state.round
    start(short(), 1000, tmp_path / "stopped", until=2)
    for _ in range(2):
        assert go_on(short(), 1000, tmp_path / "stopped").summary["network"] == result.summary["network"]
        assert everything(tmp_path / "stopped") == everything(tmp_path / "whole")


@pytest.mark.parametrize("name", some(["deadline", "aimd"], "aimd"))
def test_a_trace_is_gone_on_with(name: str, tmp_path: Path) -> None:
    table = np.random.default_rng(0).integers(0, 2, (40, len(SIZES)))
    np.save(tmp_path / "trace.npy", table)
    on = replace(ROUGH, clients=SimulatedClients(spread=0.5, trace=str(tmp_path / "trace.npy"), step=2.0))
    start(driver(name, on), 10, tmp_path / "whole")
    start(driver(name, on), 10, tmp_path / "stopped", until=6)
    go_on(driver(name, on), 10, tmp_path / "stopped")
    assert everything(tmp_path / "stopped") == everything(tmp_path / "whole")


@pytest.mark.parametrize(("name", "step"), [full("deadline", 20), full("own", 20), ("fedbuff", 40)])
def test_ctrl_c_in_a_training_ends_the_step_and_saves_it(name: str, step: int, tmp_path: Path) -> None:
    def pressed(step: int) -> Driver:
        return driver(name, world_of=lambda **settings: interrupting(observed, step, **settings))

    start(pressed(10**9), 10, tmp_path / "whole")
    result = start(pressed(step), 10, tmp_path / "stopped")
    assert result.interrupted and 0 < result.state.round < 10
    assert saved_rounds(tmp_path / "stopped" / "state") == [result.state.round]
    assert not go_on(pressed(10**9), 10, tmp_path / "stopped").interrupted
    assert everything(tmp_path / "stopped") == everything(tmp_path / "whole")


# Runs that are killed.


def train(out: str, name: str, rounds: int) -> None:
    """Start or resume a run, and tell every round."""
    folder = Path(out)
    go: Any = go_on if (folder / "metrics.jsonl").exists() else start
    go(driver(name), rounds, folder, every=3, callbacks=[Evaluated(lambda round, metrics: tell("round", round))])
    tell("finished")


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    started = Script(__name__, "train")
    yield started
    started.close()


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", ["deadline", "aimd", "guard"])
def test_kill_minus_nine_at_any_moment_changes_nothing(name: str, script: Script, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start(driver(name), 40, whole, every=3)
    for i in range(4):
        pid = script.begin(out=killed, name=name, rounds=40)
        if i % 2:
            script.wait_for("round", "finished")
        time.sleep(random.uniform(0, 0.3))
        with suppress(ProcessLookupError):  # it may have come to its end before
            os.kill(pid, signal.SIGKILL)
        assert int(script.wait_for("ended")) in (-signal.SIGKILL, 0)
    script.begin(out=killed, name=name, rounds=40)
    assert int(script.wait_for("ended")) == 0
    assert everything(killed) == everything(whole)


# What goes on by hand, and what can't.


@pytest.mark.parametrize("name", ["deadline", "probes"])
def test_a_request_that_is_given_up_has_taken_no_time(name: str) -> None:
    """Half-way through its answers; the round that is asked for again is that of a federation in which it was not."""
    world = driver(name)
    assert isinstance(world, Federation)
    with world:
        state, _ = world.round(world.start())
        request = world.ask(state)
        if request.job == "probe":
            request = world.ask(state, probed=world.collect(request))
        answers = world.executor.work(request)
        next(answers)
        answers.close()
        state, _ = world.round(state)
        found, time = record(state), world.chronicle.load(2).measures  # type: ignore[union-attr]
    plain = driver(name)
    assert isinstance(plain, Federation)
    state = plain.start()
    with plain:
        for _ in range(2):
            state, _ = plain.round(state)
        assert identical(state, found) and plain.chronicle.load(2).measures == time  # type: ignore[union-attr]


def test_evaluating_takes_no_simulated_time() -> None:
    world = driver("deadline", evaluation=Evaluation(every=1, clients=True))
    with world:
        state, _ = world.round(world.start())
        before = world.chronicle.load(1).measures  # type: ignore[union-attr]
        world.evaluate(state)
        assert world.chronicle.load(1).measures == before  # type: ignore[union-attr]


def test_a_probe_takes_the_time_of_one_pass_over_a_clients_samples() -> None:
    """And its own download and upload; the training takes that of two epochs."""
    calm = Network(Link(1e12), clients=SimulatedClients(seconds=6.0))
    world = federation(data=data((5, 5)), sampling=Uniform(2), local=LOCAL, method=Mime())
    world = replace(world, data=OnNetwork(world.clients, calm))
    with world:
        world.round(world.start())
        assert world.chronicle.load(1).measures["time"] == pytest.approx(3.0 + 6.0)  # type: ignore[union-attr]


def test_those_who_do_not_answer_are_told_apart(tmp_path: Path) -> None:
    start(driver("deadline"), 12, tmp_path)
    why = {why for row in rows(tmp_path) for why in row.get("missing", {}).values()}
    assert {"away", "went away", "late"} <= why
    assert why <= {"away", "went away", "late", "lost: 2 failed uploads"}


@pytest.mark.parametrize("name", some(["deadline", "own"], "own"))
def test_another_network_is_refused_when_a_run_goes_on(name: str, tmp_path: Path) -> None:
    start(driver(name), 6, tmp_path, until=3)
    with pytest.raises(ValueError, match=r"holds a run of another experiment: past.network is .* there"):
        go_on(driver(name, replace(ROUGH, timeout=4.0)), 6, tmp_path)
