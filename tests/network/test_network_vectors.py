"""Which vectors of a scheduler are saved: those that are still needed."""

from __future__ import annotations

import pytest
import torch

from fedsash.methods.sampling import Uniform
from fedsash.network import Asynchronous, FedAsync, FedBuff, Link, Network, SimulatedClients
from fedsash.network.driver import MODEL
from fedsash.network.schedulers import Scheduler
from fedsash.network.vectors import Numbering
from support.worlds import SIZES, federation


def test_vectors_that_nobody_needs_any_more_are_not_saved() -> None:
    numbering, one = Numbering(), torch.ones(2)
    kept, gone = numbering.make(one), numbering.make(2 * one)
    total = sum([kept, 2.0 * gone, kept - gone / 2])
    numbering.step()
    del gone
    assert {int(number): w.tolist() for number, w in numbering.saved().items()} == {0: [1.0, 1.0], 7: [5.0, 5.0]}
    mean = -total / 5  # between two steps what is used is kept, and what is new does not count
    del total
    assert len(numbering.saved()) == 2 and torch.equal(mean.known, -one)
    numbering.step()
    assert {int(number) for number in numbering.saved()} == {0, mean.number}


@pytest.mark.parametrize("scheduler", [FedAsync(), FedBuff(3)], ids=["fedasync", "fedbuff"])
def test_a_saved_state_has_the_models_of_trips_that_go_on_and_not_of_those_that_are_over(scheduler: Scheduler) -> None:
    """After a step a buffer is empty, and a client that has just come back has no model: N - 1 at most."""
    network = Network(Link(1e4, 0.01), clients=SimulatedClients(spread=1.0), bytes=1000)
    saved = []
    driver = Asynchronous(federation(sampling=Uniform()), network, scheduler)
    with driver.federation as world:
        state = world.start()
        for _ in range(20):
            state, _ = driver.round(state)
            saved.append(sum(name.startswith(MODEL) for name in driver.saved(state).executor))
    assert 0 < max(saved) <= len(SIZES) - 1, saved


def test_a_loan_is_the_same_vector_and_is_saved_only_if_it_is_needed_elsewhere() -> None:
    numbering = Numbering()
    own, lent = numbering.make(torch.ones(2)), numbering.make(torch.zeros(2))
    loans = [numbering.loan(own), numbering.loan(lent)]
    assert [loan.number for loan in loans] == [0, 1] and torch.equal(loans[0].known, own.known)
    numbering.step()
    del lent
    assert torch.equal((loans[1] + own).known, own.known)
    assert list(numbering.saved()) == [f"{0:012d}"]
