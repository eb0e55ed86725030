"""The time that a run has left: a known clock, and evaluations that take longer than rounds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.evaluation import Evaluation
from fedsash.lab.progress.pace import Pace


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 40), st.integers(0, 40))
def test_the_evaluations_that_are_left_are_those_that_are_due(every: int, last: int, round: int, rounds: int) -> None:
    evaluation = Evaluation(every=every, last=last)
    due = [r for r in range(round + 1, rounds + 1) if evaluation.due(r, rounds)]
    assert evaluation.left(round, rounds) == len(due)


def lefts(pace: Pace, clock: Clock, evaluation: Evaluation, train: float, score: float) -> list[tuple[float, float]]:
    """A run on a known clock: at each tenth of each round and of each evaluation, the time left and the true one."""
    seen: list[tuple[float, float]] = []
    pace.reach(0)
    due = [evaluation.due(r, pace.rounds) for r in range(1, pace.rounds + 1)]
    end = clock.now + train * len(due) + score * sum(due)

    def work(seconds: float) -> None:
        for _ in range(10):
            clock.now += seconds / 10
            if left := pace.left():
                seen.append((left[0], end - clock.now))

    for round, scored in enumerate(due, 1):
        work(train)
        if scored:
            pace.begin_evaluation()
            for model in range(4):
                pace.evaluated(model / 4)
                work(score / 4)
            pace.end_evaluation()
        pace.reach(round)
    return seen


@pytest.mark.parametrize("every, train, score", [(1, 1.0, 40.0), (3, 2.0, 5.0), (5, 20.0, 1.0)])
def test_the_time_left_is_the_true_one_after_the_first_evaluation(every: int, train: float, score: float) -> None:
    clock, evaluation = Clock(), Evaluation(every=every, last=2)
    seen = lefts(Pace(20, lambda r: evaluation.left(r, 20), clock), clock, evaluation, train, score)
    known = seen[next(i for i, (left, true) in enumerate(seen) if left == pytest.approx(true, abs=1e-6)) :]
    assert len(known) > len(seen) / 2
    assert [left for left, _ in known] == pytest.approx([true for _, true in known], abs=1e-6)


def test_the_time_left_never_grows_while_models_are_evaluated_or_a_round_lasts() -> None:
    clock = Clock()
    pace = Pace(10, lambda r: 10 - r, clock)
    pace.reach(0)
    for round in (1, 2):
        clock.now += 3
        pace.begin_evaluation()
        clock.now += 80
        pace.end_evaluation()
        pace.reach(round)
    clock.now += 3
    pace.begin_evaluation()
    seen = []
    for _ in range(200):  # this one takes longer than those before
        clock.now += 1
        left = pace.left()
        assert left is not None and left[1]
        seen.append(left[0])
    assert seen == sorted(seen, reverse=True) and seen[0] - seen[50] == pytest.approx(50)
    pace.end_evaluation()
    pace.reach(3)
    before = pace.left()
    clock.now += 300
    after = pace.left()
    assert before is not None and after is not None and after[0] == pytest.approx(before[0] - 3)


def test_a_slow_first_round_gives_the_pace_only_until_others_do() -> None:
    clock = Clock()
    pace = Pace(100, lambda r: 0, clock)
    pace.reach(0)
    clock.now += 30  # processes start
    pace.reach(0)
    for round, seconds in enumerate((60, 1, 1), 1):
        clock.now += seconds
        pace.reach(round)
        assert round > 1 or pace.each == pytest.approx(60)
    assert pace.each == pytest.approx(1) and pace.left() == (pytest.approx(97), True)


def test_the_pace_is_that_of_the_last_sixty_samples_which_are_half_a_second_apart() -> None:
    clock = Clock()
    pace = Pace(10_000, lambda r: 0, clock)
    pace.reach(0)
    for round in range(1, 1251):
        clock.now += 0.125 if round <= 1000 else 0.25 if round <= 1200 else 0.5
        pace.reach(round)
        assert round != 1200 or pace.each == 0.25
    # Each of the last 50 rounds is a sample; of those before, every second one: 1199, 1197, ... The sixtieth is 1181.
    assert pace.each == (50 * 0.5 + 19 * 0.25) / (1250 - 1181)


def test_before_the_first_evaluation_the_time_left_is_known_to_lack_it() -> None:
    clock = Clock()
    pace = Pace(10, lambda r: int(r < 10), clock)
    pace.reach(0)
    clock.now += 2
    pace.reach(1)
    assert pace.left() == (pytest.approx(18), False) and pace.each == pytest.approx(2)


def test_during_the_first_evaluation_the_time_left_follows_from_the_models_that_are_done() -> None:
    clock = Clock()
    pace = Pace(2, lambda r: 2 - r, clock)
    pace.reach(0)
    clock.now += 10
    pace.begin_evaluation()
    pace.evaluated(0)
    clock.now += 15
    assert pace.left() is None
    pace.evaluated(1 / 6)
    assert pace.left() == (pytest.approx(10 + 2 * 90 - 15), True)
    seen = []
    for _ in range(20):
        clock.now += 1
        left = pace.left()
        assert left is not None
        seen.append(left[0])
    assert seen == pytest.approx([10 + 2 * 90 - 15 - second for second in range(1, 21)])


def test_a_round_that_is_told_again_and_again_keeps_its_pace() -> None:
    """As in a sweep on a busy machine: its runs report by themselves, and together they may be no further."""
    clock = Clock()
    pace = Pace(10, lambda r: 0, clock)
    pace.reach(0)
    clock.now += 1
    for _ in range(4):
        pace.reach(1)
        assert pace.each is not None and pace.left() is not None
        clock.now += 1
    assert pace.each == 4.0
