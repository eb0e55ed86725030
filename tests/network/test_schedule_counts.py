"""What a schedule of the clients' learning rate counts on a network: their own trainings, or the server's steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from simpy import Environment

from fedsash.client import LocalTraining
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.methods.sampling import Uniform
from fedsash.methods.schedules import Constant, Exponential, Mild
from fedsash.network import (
    Asynchronous,
    ConstantWindow,
    FedAsync,
    FedBuff,
    FedWindow,
    Learning,
    Link,
    Network,
    SimulatedClients,
    Synchronous,
)
from fedsash.network.learning import Start
from fedsash.network.schedulers import Scheduler
from fedsash.network.simulated import begin
from fedsash.network.vectors import Vector
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from fedsash.testing import after, quadratic_federation
from fedsash.testing.worlds import WORKERS
from support.by_default import rotated
from support.worlds import federation

UNEVEN = Network(Link(1e4, 0.01), clients=SimulatedClients(seconds=1.0, spread=1.0, noise="exponential"))
HALVED = LocalTraining(lr=0.5, batch="full", steps=1, schedule=Exponential(0.9))
"""One step on w^2/2, which leaves the share 1 - 0.5 * 0.9^t of the model after t finished rounds."""
SCHEDULERS: dict[str, Scheduler] = {
    "own": FedWindow(ConstantWindow(2)),
    "newest": FedWindow(ConstantWindow(2), start="newest"),
    "pipelined": FedWindow(ConstantWindow(3), pipelined=True),
    "fedasync": FedAsync(),
    "fedbuff": FedBuff(2),
}


def world(**settings: Any) -> Federation:
    return quadratic_federation([1.0] * 5, [0.0] * 5, start=1.0, **{"local": HALVED} | settings)


class Noting(Learning):
    """A learner that notes for each training its number, the version of its model, and what it leaves of the model."""

    trips: tuple[tuple[int, int, float], ...] = ()

    def train(self, client: int, number: int, start: Start) -> Vector | None:
        w = super().train(client, number, start)
        assert w is not None
        self.trips += ((number, start.version, float(w.known / start.w.known)),)
        return w


def trips(scheduler: Scheduler) -> tuple[tuple[int, int, float], ...]:
    with world() as federation:
        learner = Noting(federation, federation.start(), None, scheduler.schedule_counts == "steps")
        site = begin(Environment(), UNEVEN, learner, rounds=20, seed=1)
        site.env.process(scheduler.run(site))
        site.env.run(until=site.over)
    return learner.trips


@pytest.mark.parametrize("name, counts", rotated(SCHEDULERS, ["trainings", "steps"]))
def test_the_rate_follows_what_is_counted(name: str, counts: Any) -> None:
    made = trips(replace(SCHEDULERS[name], schedule_counts=counts))
    assert any(number != version for number, version, _ in made)
    for number, version, left in made:
        t = number if counts == "trainings" else version
        assert left == pytest.approx(1 - 0.5 * 0.9**t, abs=1e-13)


def test_epochs_follow_the_servers_steps_too() -> None:
    """One epoch less in every second step, from three on: an epoch halves the model."""
    local = LocalTraining(lr=0.5, batch="full", epochs=3, schedule=Mild(0, "epochs", decay=1.0, period=2))
    rule = FedWindow(ConstantWindow(1), start="newest", schedule_counts="steps")
    driver = Asynchronous(world(local=local), UNEVEN, rule)
    assert float(after(driver, 6).w) == 0.5 ** (3 + 3 + 2 + 2 + 1 + 1)


def test_worker_processes_are_told_what_is_counted() -> None:
    rule = FedAsync(schedule_counts="steps")
    one, many = (after(Asynchronous(world(**engine), UNEVEN, rule), 12).w for engine in ({}, {"engine": WORKERS}))
    assert torch.equal(one, many)


def test_synchronous_rounds_are_the_servers_steps() -> None:
    with pytest.raises(SettingError, match=r"^Synchronous.schedule_counts = 'trainings'"):
        Synchronous(schedule_counts="trainings")  # type: ignore[arg-type]


def test_fine_tuning_needs_a_rate_of_its_own_where_each_client_counts_its_trainings() -> None:
    tuned = Evaluation(held_out=0.5, fine_tuning=FineTuning())
    made = federation(local=replace(HALVED, batch=5), sampling=Uniform(), evaluation=tuned)
    with pytest.raises(SettingError, match=r"^evaluation.fine_tuning.lr = None: must be given: the scheduler counts"):
        Asynchronous(made, UNEVEN, FedBuff(2))
    Asynchronous(made, UNEVEN, FedBuff(2, schedule_counts="steps"))
    Asynchronous(replace(made, local=replace(HALVED, batch=5, schedule=Constant())), UNEVEN, FedBuff(2))
    Asynchronous(replace(made, evaluation=replace(tuned, fine_tuning=FineTuning(lr=0.1))), UNEVEN, FedBuff(2))
