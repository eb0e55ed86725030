"""How `auto` chooses an engine from what was measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.executors import LocalEngine
from fedsash.executors.auto import CLOSE, CLOSE_COMPILED, Candidate, choose, duration

ALONE = LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="contiguous", threads=1)
STACKED = LocalEngine("vectorised", workers=1, block=10, compile=False, memory_format="contiguous", threads=1)
SPLIT = LocalEngine("vectorised", workers=2, block=5, compile=False, memory_format="contiguous", threads=1)


def stacked(candidate: Candidate) -> bool:
    return candidate.engine.kind == "vectorised"


def never(candidate: Candidate) -> bool:
    return False


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=6))
def test_what_is_chosen_is_about_as_good_as_the_fastest_and_nothing_simpler_is(seconds: list[float]) -> None:
    candidates = [Candidate(ALONE, each) for each in seconds]
    best, _ = choose(candidates, never)
    assert best.seconds <= CLOSE * min(seconds)
    assert all(simpler.seconds >= CLOSE * min(seconds) for simpler in candidates[: candidates.index(best)])


@pytest.mark.parametrize("compiles, chosen", [(never, SPLIT), (stacked, STACKED)])
def test_processes_have_to_save_more_where_steps_will_be_compiled(
    compiles: Callable[[Candidate], bool], chosen: LocalEngine
) -> None:
    between = (CLOSE + CLOSE_COMPILED) / 2
    best, compiled = choose([Candidate(ALONE, 9.0), Candidate(STACKED, between), Candidate(SPLIT, 1.0)], compiles)
    assert best.engine == chosen and compiled == (compiles is stacked)


def test_processes_that_save_most_of_the_time_are_chosen_even_so() -> None:
    best, compiled = choose([Candidate(STACKED, 1.01 * CLOSE_COMPILED), Candidate(SPLIT, 1.0)], stacked)
    assert best.engine == SPLIT and compiled


def test_what_is_only_fast_when_it_is_not_compiled_is_not_compiled() -> None:
    best, compiled = choose([Candidate(ALONE, 1.0), Candidate(STACKED, 2.0)], stacked)
    assert best.engine == ALONE and not compiled


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00123, "1.23 ms"), (0.0999, "99.9 ms"), (0.105, "0.10 s"), (1.09, "1.09 s"), (99.0, "99.00 s")],
)
def test_the_time_of_a_round_has_no_powers_of_ten(seconds: float, text: str) -> None:
    assert duration(seconds) == text
