"""What decides three claims of WiMA is calculated as their functions word it, and draws of clients differ alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.last_clients import Course, Run, evidence, federation

from fedsash import Federation
from fedsash.lab.papers.wima_claims import CLAIMS
from support.places import real


def course(accuracy: list[float], held: list[float], others: list[float], ago: dict[int, list[float]]) -> Course:
    return Course(accuracy, held, others, ago)


def test_the_drop_is_that_of_rounds_whose_clients_hold_few_classes() -> None:
    assert Course([50.0, 40.0, 45.0, 30.0]).drop([3, 5, 8, 2]) == (10 + 15) / 2


def test_a_look_tells_the_classes_of_the_last_clients_from_the_others() -> None:
    watched = Course()
    by_class = torch.tensor([80.0, 60.0, 10.0, 30.0])
    watched.look(by_class, [0, 1])
    watched.look(by_class, [0, 1, 2, 3])  # there are no others
    assert watched.accuracy == [45.0, 45.0]
    assert watched.held == [70.0]
    assert watched.others == [20.0]


def test_a_look_back_is_by_how_long_ago_a_client_took_part() -> None:
    watched = Course()
    by_client = torch.tensor([90.0, 70.0, 50.0, 30.0])
    last_rounds = np.array([7, 7, 5, -11])  # the last one never took part
    watched.look_back(by_client, last_rounds, 7)
    assert watched.ago == {1: [80.0], 3: [50.0]}


def test_evidence_is_judged_as_the_claims_word_it() -> None:
    ago = {1: [60.0], 2: [50.0]}
    steady = {1: [58.0], 2: [57.0]}
    runs = {}
    for seed in range(3):
        draws = []
        for draw in range(3):
            end = 50.0 + 4 * draw
            base = course([70.0, end - seed], [80.0, 82.0], [30.0, 31.0], ago)
            window = course([62.0, 60.0 + 0.1 * draw - seed], [60.0, 61.0], [55.0, 56.0], steady)
            draws.append(Run({"base": base, "WiMA": window}, [10, 4]))
        runs[str(seed)] = draws
    numbers = evidence(runs)
    assert {name: CLAIMS[name].judged(numbers[name]).verdict for name in numbers} == dict.fromkeys(numbers, "yes")
    spread = numbers["W9"]["spread"]
    assert spread["base",].mean == pytest.approx(4 * np.std([0, 1, 2], ddof=1) / 2)  # the end is the mean of two rounds


@pytest.mark.full
def test_a_draw_changes_the_clients_of_rounds_and_nothing_else() -> None:
    folder = Path(real("fashion_mnist"))
    one, other = (federation(folder, seed=3, draw=draw) for draw in (0, 1))
    assert torch.equal(one.start().w, other.start().w)
    for ids, others in zip(one.training_data.clients, other.training_data.clients, strict=True):
        assert np.array_equal(ids, others)
    assert clients_of(one) != clients_of(other)


def clients_of(federation: Federation) -> list[list[int]]:
    """The clients of the first rounds."""
    return [federation.sampling.clients(round, federation.sizes, federation.seed).tolist() for round in range(5)]
