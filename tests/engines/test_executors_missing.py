"""Clients that do not answer, are refused, or are forgotten by their executor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.evaluation import Evaluation
from fedsash.methods import Method, Mime, Scaffold, WeightedMean
from fedsash.methods.sampling import Uniform
from fedsash.vector.arrays import Ints
from support.executors import Absent, Twice
from support.worlds import SIZES, federation

EVERYBODY = Uniform(len(SIZES))


def ids_without(who: tuple[int, ...]) -> Ints:
    return np.setdiff1d(np.arange(len(SIZES)), who)


@pytest.mark.parametrize("method", [Scaffold(), Scaffold("I")])
def test_a_round_with_missing_clients_is_the_round_of_those_that_answered(method: Method) -> None:
    who = (1, 4)
    with federation(method=method, engine=Absent(who=who), sampling=EVERYBODY) as world:
        state, outcome = world.round(world.start())
    assert outcome.missing == {1: "late", 4: "late"} and outcome.clients.tolist() == list(range(6))
    assert outcome.samples == 2 * sum(SIZES[i] for i in ids_without(who))
    with federation(method=method, sampling=EVERYBODY) as world:
        first = world.start()
        request = world.ask(first, ids=ids_without(who))
        expected, _ = world.server_round.step(first, request, world.collect(request))
    torch.testing.assert_close(state.w, expected.w, rtol=0, atol=1e-15)
    torch.testing.assert_close(state.server_state["c"], state.client_state["c"].mean(0), rtol=0, atol=1e-15)
    assert state.last.tolist() == [1, 0, 1, 1, 0, 1] == expected.last.tolist()


def test_when_nobody_answers_the_round_is_skipped() -> None:
    with federation(engine=Absent(who=tuple(range(6)))) as world:
        state, outcome = world.round(world.start())
    assert outcome.skipped == "no client answered" and not outcome.moved and state.round == 1
    assert torch.equal(state.w, world.start().w) and state.last.tolist() == []


@pytest.mark.parametrize(("minimum", "skipped"), [(4, ""), (5, "only 4 uploads can be used, of at least 5")])
def test_a_round_with_fewer_uploads_than_its_executor_asks_for_is_skipped(minimum: int, skipped: str) -> None:
    with federation(method=Scaffold(), engine=Absent(who=(1, 4)), sampling=EVERYBODY) as world:
        world.executor.minimum = minimum
        state, outcome = world.round(world.start())
        start = world.start()
    assert outcome.skipped == skipped and state.round == 1
    assert torch.equal(state.w, start.w) == bool(skipped)
    assert state.last.any() != bool(skipped) and state.client_state["c"].any() != bool(skipped)


@pytest.mark.parametrize("who", [(2,), (0, 3, 5), tuple(range(6))])
def test_who_misses_the_probe_is_not_asked_to_train(who: tuple[int, ...]) -> None:
    with federation(method=Mime(), engine=Absent(who=who, job="probe"), sampling=EVERYBODY) as world:
        state, outcome = world.round(world.start())
    assert set(outcome.missing) == set(who)
    with federation(method=Mime(), sampling=EVERYBODY) as world:
        first = world.start()
        probe = world.ask(first, ids=ids_without(who))
        if len(probe.ids):
            probed = world.collect(probe)
            request = world.ask(first, probed=probed)
            first, _ = world.server_round.step(first, request, world.collect(request), probed)
    torch.testing.assert_close(state.w, first.w, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("times", "why"), [(2, "again, or too late"), (0, "every place must be answered")])
def test_an_executor_that_forgets_or_repeats_a_client_is_told_so(times: int, why: str) -> None:
    with federation(engine=Twice(times=times)) as world, pytest.raises(RuntimeError, match=why):
        world.round(world.start())


def test_a_probe_passes_the_same_guard_as_an_upload() -> None:
    with federation(method=Mime(), aggregation=Strict(), sampling=EVERYBODY) as world:
        _, outcome = world.round(world.start())
    assert sorted(outcome.refused) == list(range(len(SIZES))) and outcome.skipped


@dataclass(frozen=True)
class Strict(WeightedMean):
    """An aggregation that accepts nobody."""

    def accepts(self, norms: Tensor) -> list[int]:
        return []


@pytest.mark.parametrize("times", [2, 3])
def test_who_answers_twice_when_a_model_is_evaluated_is_told_so(times: int) -> None:
    asks = federation(engine=Twice(times=times), evaluation=Evaluation(clients=True))
    with asks, pytest.raises(RuntimeError, match="every place is answered once"):
        asks.evaluate(asks.start())
