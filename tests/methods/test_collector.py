"""The collector: each place is answered once, uploads come in order, and nobody is forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.client.messages import Answer, Answers, Collector, Missing, PartialSum, Reply, in_order
from support.uploads import reply


def of(place: int, count: int = 1) -> Reply:
    """The answer of some clients from a place on, whose uploads are their places."""
    return reply(place, {"delta": torch.arange(place, place + count, dtype=torch.float64).unsqueeze(1)})


def absent(*places: int) -> Missing:
    return Missing(np.array(places, dtype=np.int64), "late")


def stream(*answers: Answer) -> Answers:
    yield from answers


def test_it_says_who_answered_and_who_is_missing() -> None:
    collector = Collector(np.array([7, 3, 9, 4]))
    replies = collector.replies(stream(absent(2), of(0, 2), of(3)))
    assert [one.places.tolist() for one in replies] == [[0, 1], [3]]
    assert (collector.accepted, collector.missing) == ([0, 1, 3], {2: "late"})


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ([of(0), of(0), of(1)], r"answers for the places \[0\] again, or too late"),
        ([of(1), of(0)], r"answers for the places \[0\] again, or too late"),
        ([replace(of(0, 2), places=np.array([0, 0]))], r"answers for the places \[0, 0\] again, or too late"),
        ([replace(of(0, 2), places=np.array([1, 0]))], r"answers for the places \[1, 0\] again, or too late"),
        ([absent(0), of(0, 2)], r"answers for the places \[0, 1\] again, or too late"),
        ([of(1)], r"has not answered for the clients \[5\]: every place must be answered"),
        (
            [PartialSum(accepted=np.arange(2), sums={}, client_state={}, samples=0)],
            "sums up answers that are needed one by one: it must send replies",
        ),
    ],
)
def test_an_executor_that_does_not_keep_to_the_order_is_told_so(answers: list[Answer], line: str) -> None:
    with pytest.raises(RuntimeError, match=line):
        Collector(np.array([5, 6])).replies(stream(*answers))


@given(order=st.permutations(range(6)), away=st.sets(st.sampled_from(range(6))))
def test_what_comes_in_any_order_is_given_on_in_the_rounds_order(order: list[int], away: set[int]) -> None:
    came = [absent(place) if place in away else of(place) for place in order]
    collector = Collector(np.arange(6))
    replies = collector.replies(stream(*in_order(came)))
    assert [int(one.places[0]) for one in replies] == [place for place in range(6) if place not in away]
    assert collector.missing.keys() == away
    early = [int(one.places[0]) for one in in_order(came) if isinstance(one, Missing)]
    assert early == [place for place in order if place in away]
