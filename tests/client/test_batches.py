from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedsash.client.plan import Batches, BatchPlan
from fedsash.client.settings import Batching
from fedsash.vector.arrays import Ints

LIKE = torch.empty(0, dtype=torch.float64)
seeds = st.integers(0, 2**63)
rounds = st.integers(0, 10**6)


def clients_of(sizes: list[int]) -> list[Ints]:
    """Clients that hold scattered samples, none of them number 0."""
    samples = np.random.default_rng(0).permutation(np.arange(1, sum(sizes) + 1))
    return np.split(samples, np.cumsum(sizes)[:-1])


def planner(
    clients: list[Ints], batch: Any, by_steps: bool, drop_last: bool, seed: int, like: torch.Tensor = LIKE
) -> Batches:
    return Batches(Batching(batch, by_steps, drop_last), clients, seed=seed, like=like)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Batches, list[Ints], dict[str, Any], int]:
    """A planner, its clients, its settings and a number of epochs, or of steps."""
    clients = clients_of(draw(st.lists(st.integers(1, 13), min_size=1, max_size=5)))
    how: dict[str, Any] = {
        "batch": draw(st.integers(1, 15) | st.just("full")),
        "by_steps": draw(st.booleans()),
        "drop_last": draw(st.booleans()),
        "seed": draw(seeds),
    }
    return planner(clients, **how), clients, how, draw(st.integers(1, 9 if how["by_steps"] else 3))


def everyone(clients: list[Ints]) -> Ints:
    return np.arange(len(clients))


def batches_of(plan: BatchPlan, c: int) -> list[list[int]]:
    """A client's batches, step by step, as lists of sample numbers."""
    return [plan.index[k, c, : plan.count[k, c]].tolist() for k in range(plan.steps[c])]


def plan_of(batches: Batches, round: int, ids: Ints, amounts: Ints | int) -> BatchPlan:
    """The plan of clients that train by these amounts."""
    return batches.plan(round, ids, batches.batching.workload(batches.sizes_of(ids), amounts))


def naive_epoch(n: int, batch: int | str, drop_last: bool) -> list[int]:
    """The sizes of one epoch's batches."""
    b = n if batch == "full" else int(batch)
    sizes = [min(b, n - i) for i in range(0, n, b)]
    return [s for s in sizes if s == b] or sizes if drop_last else sizes


@given(case=cases(), round=rounds)
def test_every_epoch_sees_each_sample_once_or_drops_the_last_batch(case: Any, round: int) -> None:
    batches, clients, how, amount = case
    plan = plan_of(batches, round, everyone(clients), amount)
    for c, own in enumerate(clients):
        epoch = naive_epoch(len(own), how["batch"], how["drop_last"])
        steps = amount if how["by_steps"] else amount * len(epoch)
        assert plan.steps[c] == steps
        assert [len(b) for b in batches_of(plan, c)] == [epoch[k % len(epoch)] for k in range(steps)]
        for first in range(0, steps, len(epoch)):
            seen = [i for b in batches_of(plan, c)[first : first + len(epoch)] for i in b]
            assert len(set(seen)) == len(seen) and set(seen) <= set(own.tolist())
            if not how["drop_last"] and first + len(epoch) <= steps:
                assert sorted(seen) == sorted(own)


@given(case=cases(), round=rounds)
def test_weights_are_the_batch_mean_and_zero_on_padding_of_the_clients_own_samples(case: Any, round: int) -> None:
    batches, clients, _, amount = case
    plan = plan_of(batches, round, everyone(clients), amount)
    k, c, b = plan.index.shape
    assert plan.weights.shape == (k, c, b) and plan.count.shape == (k, c) and plan.steps.shape == (c,)
    assert (k, c, b) == (plan.steps.max(), len(clients), batches.width)
    real = np.arange(b) < plan.count[:, :, None]
    assert np.array_equal(plan.count > 0, np.arange(k)[:, None] < plan.steps)
    expected = np.where(real, 1 / np.maximum(plan.count, 1)[:, :, None], 0.0)
    assert plan.weights.dtype == LIKE.dtype and np.array_equal(plan.weights.numpy(), expected)
    torch.testing.assert_close(plan.weights.sum(2), torch.from_numpy(plan.count > 0).double(), rtol=1e-14, atol=0)
    for i, own in enumerate(clients):
        assert set(plan.index[:, i].ravel().tolist()) <= set(own.tolist())


@given(case=cases(), round=rounds, data=st.data())
def test_a_clients_plan_does_not_depend_on_the_block_it_is_in(case: Any, round: int, data: st.DataObject) -> None:
    batches, clients, _, amount = case
    alone = [plan_of(batches, round, np.array([i]), amount) for i in range(len(clients))]
    ids = data.draw(st.lists(st.integers(0, len(clients) - 1), min_size=1, max_size=6))
    block = plan_of(batches, round, np.array(ids), amount)
    for c, i in enumerate(ids):
        steps = block.steps[c]
        assert batches_of(block, c) == batches_of(alone[i], 0)
        assert alone[i].index.shape == (steps, 1, batches.width) and alone[i].steps.tolist() == [steps]
        assert np.array_equal(alone[i].count[:, 0], block.count[:steps, c])
        assert torch.equal(alone[i].weights[:, 0], block.weights[:steps, c])


@given(case=cases(), round=rounds)
def test_steps_and_samples_are_what_the_plans_hold(case: Any, round: int) -> None:
    batches, clients, _, amount = case
    plan = plan_of(batches, round, everyone(clients), amount)
    work = batches.batching.workload(batches.sizes, amount)
    assert np.array_equal(work.steps, plan.steps)
    assert np.array_equal(work.samples, plan.count.sum(axis=0))
    assert np.array_equal(batches.sizes, [len(own) for own in clients])


@given(case=cases(), chunk=st.integers(1, 15), data=st.data())
def test_whole_passes_over_all_samples_in_order_with_weights_that_sum_to_one(
    case: Any, chunk: int, data: st.DataObject
) -> None:
    batches, clients, _, _ = case
    ids = data.draw(st.lists(st.integers(0, len(clients) - 1), min_size=1, max_size=4))
    plan = batches.whole(np.array(ids), chunk)
    for c, i in enumerate(ids):
        assert [s for b in batches_of(plan, c) for s in b] == clients[i].tolist()
        assert plan.steps[c] == len(naive_epoch(len(clients[i]), chunk, drop_last=False))
        real = np.arange(chunk) < plan.count[:, c, None]
        assert np.array_equal(plan.weights[:, c].numpy(), np.where(real, 1 / len(clients[i]), 0.0))
        assert set(plan.index[:, c].ravel().tolist()) <= set(clients[i].tolist())


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4), round=rounds, epochs=st.integers(1, 3), seed=seeds)
def test_full_is_one_batch_of_all_samples_an_epoch(sizes: list[int], round: int, epochs: int, seed: int) -> None:
    clients = clients_of(sizes)
    for drop_last in (False, True):
        batches = planner(clients, batch="full", by_steps=False, drop_last=drop_last, seed=seed)
        plan = plan_of(batches, round, everyone(clients), epochs)
        assert batches.width == max(sizes) and plan.steps.tolist() == [epochs] * len(sizes)
        assert all(sorted(b) == sorted(own) for c, own in enumerate(clients) for b in batches_of(plan, c))


@given(case=cases(), round=rounds)
def test_plans_are_pure(case: Any, round: int) -> None:
    batches, clients, _, amount = case
    plan = plan_of(batches, round, everyone(clients), amount)
    plan_of(batches, round + 1, everyone(clients), amount + 1)
    assert np.array_equal(plan_of(batches, round, everyone(clients), amount).index, plan.index)


@settings(max_examples=30)
@given(round=rounds, seed=seeds)
def test_epochs_rounds_clients_and_seeds_are_shuffled_differently(round: int, seed: int) -> None:
    """Of 30! orders, two are the same about never."""
    clients = clients_of([30, 30])

    def orders(round: int, seed: int) -> list[list[int]]:
        batches = planner(clients, batch=30, by_steps=True, drop_last=False, seed=seed)
        plan = plan_of(batches, round, np.arange(2), 2)
        place = [{int(sample): i for i, sample in enumerate(own)} for own in clients]
        return [[place[c][i] for i in b] for c in range(2) for b in batches_of(plan, c)]

    drawn = orders(round, seed) + orders(round + 1, seed) + orders(round, seed + 1)
    assert len({tuple(order) for order in drawn}) == len(drawn)


def test_every_place_is_equally_likely_for_every_sample() -> None:
    """Chi-square over 600 shuffles of five samples; its 16 degrees of freedom exceed 70 about once in 10**8."""
    batches = planner(clients_of([5]), batch=5, by_steps=True, drop_last=False, seed=0)
    order = plan_of(batches, 0, np.array([0]), 600).index[:, 0]
    counts = np.array([[(order[:, place] == sample).sum() for place in range(5)] for sample in np.unique(order)])
    assert (counts.sum(axis=0) == 600).all() and (counts.sum(axis=1) == 600).all()
    assert ((counts - 120.0) ** 2 / 120).sum() < 70


@settings(max_examples=30)
@given(case=cases(), more=st.integers(1, 4), round=rounds)
def test_more_steps_go_on_where_fewer_end(case: Any, more: int, round: int) -> None:
    batches, clients, how, steps = case
    assume(how["by_steps"])
    plan, further = (plan_of(batches, round, everyone(clients), amount) for amount in (steps, steps + more))
    for c in everyone(clients):
        assert batches_of(further, c)[:steps] == batches_of(plan, c)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_have_the_models_type(dtype: torch.dtype) -> None:
    batches = planner(clients_of([3, 4]), 2, False, False, 0, like=torch.empty(0, dtype=dtype))
    assert plan_of(batches, 0, np.arange(2), 1).weights.dtype == batches.whole(np.arange(2), 2).weights.dtype == dtype


def test_a_sample_that_a_client_holds_twice_is_seen_twice() -> None:
    batches = planner([np.array([4, 4, 9])], batch=2, by_steps=False, drop_last=False, seed=0)
    plan = plan_of(batches, 0, np.array([0]), 1)
    assert sorted(i for b in batches_of(plan, 0) for i in b) == [4, 4, 9]


@given(case=cases(), round=rounds, data=st.data())
def test_clients_with_amounts_of_their_own_have_the_plans_of_each_alone(case: Any, round: int, data: Any) -> None:
    batches, clients, _, most = case
    amounts = np.array([data.draw(st.integers(1, most)) for _ in clients])
    block = plan_of(batches, round, everyone(clients), amounts)
    assert np.array_equal(batches.batching.workload(batches.sizes, amounts).steps, block.steps)
    for c, amount in enumerate(amounts.tolist()):
        assert batches_of(block, c) == batches_of(plan_of(batches, round, np.array([c]), amount), 0)
