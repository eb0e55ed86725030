"""Pieces of a round: the bytes depend on their number, and on nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsash.client.messages import Effort
from fedsash.methods import FedAvg, FedGMA, Method, Scaffold
from fedsash.methods.sampling import Uniform
from support.by_default import rotated
from support.executors import Cluster
from support.uploads import reply, uploads_of
from support.worlds import ENGINES, SEQUENTIAL, SIZES, after, federation, identical

EVERYBODY = Uniform(len(SIZES))


@pytest.mark.parametrize("pieces, method", rotated([3, 9, 1, 2, 5], [Scaffold(), Scaffold("I")], turns=1))
def test_parts_summed_elsewhere_give_the_bytes_of_replies_at_the_same_pieces(pieces: int, method: Method) -> None:
    settings: Any = {"method": method, "sampling": EVERYBODY}
    replies = after(federation(**settings, engine=replace(SEQUENTIAL, pieces=pieces)), 4)
    parts = after(federation(**settings, engine=Cluster(pieces=pieces)), 4)
    assert identical(parts, replies)
    workers = after(federation(**settings, engine=replace(ENGINES["workers"], pieces=pieces)), 4)
    assert identical(workers, replies)
    one = after(federation(**settings, engine=SEQUENTIAL), 4).w
    torch.testing.assert_close(replies.w, one, rtol=0, atol=1e-14)


def test_a_part_says_who_was_refused_and_who_was_missing() -> None:
    upload = {"delta": torch.tensor([[1.0], [math.nan], [3.0]], dtype=torch.float64)}
    whole, one, other = (uploads_of([1, 1, 2, 1, 1], FedAvg(), pieces=2) for _ in range(3))
    one.take(reply(0, upload, Effort(np.array([4, 5, 6]), np.array([1, 1, 1]))))
    whole.take(one.partial_sum())
    other.collector.missing[3] = "late"
    other.take(reply(4, {"delta": torch.tensor([[8.0]], dtype=torch.float64)}))
    whole.take(other.partial_sum())
    collector = whole.collector
    assert (collector.refused, collector.missing, collector.accepted) == ([1], {3: "late"}, [0, 2, 4])
    assert collector.samples == 15
    assert float(whole.mean()["delta"]) == pytest.approx((1 * 1 + 2 * 3 + 1 * 8) / 4)


def test_sums_are_not_added_up_in_the_memory_of_an_answer() -> None:
    whole = uploads_of([1, 1, 1], FedAvg(), pieces=3)
    parts = []
    for place, value in enumerate((1.0, 2.0, 4.0)):
        piece = uploads_of([1, 1, 1], FedAvg(), pieces=3)
        piece.take(reply(place, {"delta": torch.tensor([[value]], dtype=torch.float64)}))
        parts.append(piece.partial_sum())
        whole.take(parts[-1])
    assert float(whole.mean()["delta"]) == pytest.approx(7 / 3)
    assert [float(part.sums["delta"]) for part in parts] == pytest.approx([1 / 3, 2 / 3, 4 / 3])


def test_a_part_that_is_no_piece_of_the_round_is_refused() -> None:
    one = {"delta": torch.ones(1, 2)}
    whole, wrong = uploads_of([1] * 4, FedAvg(), pieces=2), uploads_of([1] * 4, FedAvg(), pieces=4)
    wrong.take(reply(0, one))
    with pytest.raises(RuntimeError, match=r"a partial sum over the places \[0\] is not one of the round's 2 pieces"):
        whole.take(wrong.partial_sum())
    with pytest.raises(ValueError, match="needs every single update"):
        uploads_of([1] * 4, FedAvg(), FedGMA(mask="code"), pieces=2).partial_sum()
