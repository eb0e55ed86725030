"""Private without noise: what one client can change, who counts how much, and where it is FedAvg."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsash.methods import FedAvg, FedProx, Private
from fedsash.methods.sampling import Poisson
from fedsash.testing import close
from support.by_default import rotated
from support.private import UNIFORM, along, sending
from support.uploads import aggregate
from support.worlds import ENGINES, after, federation

numbers = st.floats(-1e5, 1e5, allow_subnormal=False)
updates = st.lists(st.tuples(*[numbers] * 4), min_size=2, max_size=6)


def total(deltas: list[tuple[float, ...]], clip: float) -> Tensor:
    """The sum of the clipped updates."""
    upload = {"delta": torch.tensor(deltas, dtype=torch.float64)}
    uploads = aggregate(np.ones(len(deltas)), upload, (1,), UNIFORM, Private(clip, 0.0))
    return uploads.mean()["delta"] * len(uploads.collector.accepted)


@given(deltas=updates, other=st.tuples(*[numbers] * 4), clip=st.floats(0.01, 1e4))
def test_one_client_changes_the_sum_by_at_most_the_clip_norm_and_twice_that_if_it_is_replaced(
    deltas: list[tuple[float, ...]], other: tuple[float, ...], clip: float
) -> None:
    whole, rounding = total(deltas, clip), 1e-12 * clip * len(deltas)
    assert (whole - total(deltas[1:], clip)).norm() <= clip + rounding
    assert (whole - total([other, *deltas[1:]], clip)).norm() <= 2 * clip + rounding


@given(deltas=updates)
def test_updates_up_to_the_clip_norm_are_left_as_they_are(deltas: list[tuple[float, ...]]) -> None:
    upload = torch.tensor(deltas, dtype=torch.float64)
    longest = float(torch.linalg.vector_norm(upload, dim=1).max())
    plain = aggregate(np.ones(len(deltas)), {"delta": upload}, (1,), UNIFORM)
    clipped = aggregate(
        np.ones(len(deltas)), {"delta": upload}, (1,), UNIFORM, Private(longest * (1 + 1e-12) or 1.0, 0.0)
    )
    assert torch.equal(plain.mean()["delta"], clipped.mean()["delta"])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e9])
def test_an_upload_that_the_guard_refuses_counts_as_an_update_of_zero(bad: float) -> None:
    refused, zero = (after(sending(along(1.0, 0.5, x), aggregation=Private(2.0, 0.0)), 1) for x in (bad, 0.0))
    assert close(refused.w, zero.w, 1e-15) and float(zero.w[0]) == pytest.approx(0.5)


def test_the_sum_is_divided_by_the_expected_number_of_clients_whoever_answers() -> None:
    rule, often = Private(5.0, 0.0), Poisson(0.5)
    answers = after(sending([*along(1.0, 1.0), "lost", "late"], aggregation=rule), 1)
    assert float(answers.w[0]) == pytest.approx(2 / 4)
    drawn = sum(len(often.clients(round, np.ones(4, dtype=np.int64), 0)) for round in range(40))
    moved = after(sending(along(1.0, 1.0, 1.0, 1.0), aggregation=rule, sampling=often), 40)
    assert float(moved.w[0]) == pytest.approx(drawn / 2)


@pytest.mark.parametrize("engine, method", rotated(ENGINES, [UNIFORM, FedProx(0.3, weighting="uniform")], turns=2))
def test_with_an_infinite_norm_it_is_the_uniform_mean_bitwise(method: Any, engine: str) -> None:
    settings = {"method": method, "engine": ENGINES[engine]}
    plain = after(federation(**settings), 2)
    private = after(federation(**settings, aggregation=Private(math.inf, 0.0)), 2)
    assert torch.equal(plain.w, private.w)


def test_a_method_gets_nothing_but_what_is_released() -> None:
    seen = []

    class Watching(FedAvg):
        def server_update(self, received: Any) -> Any:
            seen.append(received)
            return received.update, received.server_state

    after(sending(along(3.0, 0.5), aggregation=Private(1.0, 0.0), method=Watching(weighting="uniform")), 1)
    (received,) = seen
    assert set(received.mean) == {"delta"} and torch.equal(received.mean["delta"], received.update)
    assert received.update.tolist() == pytest.approx([0.75, 0.0])
