"""How `auto` chooses an engine from what was measured."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.executors import LocalEngine
from fedsash.executors.auto import (
    CLOSE,
    CLOSE_COMPILED,
    COMPILING,
    Candidate,
    Trial,
    _candidates,
    choose,
    duration,
    repays,
    step_seconds,
)
from fedsash.executors.devices import cores
from fedsash.executors.training import ClientWork
from fedsash.testing.worlds import small_data, small_federation, small_model

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


def test_while_other_programs_use_the_cores_the_processors_time_counts() -> None:
    """Two threads wait for each other, so that they do not show who else uses the cores."""
    quiet, waiting, busy = Trial(1.0, 0.95, 1), Trial(1.0, 0.5, 2), Trial(3.0, 1.0, 1)
    assert step_seconds([quiet, waiting]) == [1.0, 1.0]
    assert step_seconds([quiet, waiting, busy]) == [0.95, 0.5, 1.0]


def test_a_run_is_compiled_if_that_saves_more_time_than_it_takes() -> None:
    assert not repays(0.01, rounds=None) and not repays(0.01, rounds=100)
    assert repays(0.01, rounds=10_000) and repays(2 * COMPILING, rounds=1)


@pytest.mark.slow
def test_what_is_measured_while_other_programs_use_the_cores_is_what_was_measured_before() -> None:
    with small_federation(model=small_model(dtype=torch.float32), engine=LocalEngine()) as world:
        work = ClientWork(world._training(), small_data())

        def measured() -> list[float]:
            return [candidate.seconds for candidate in _candidates(LocalEngine(workers=1, threads=1), work)]

        alone = measured()
        with busy_cores(3 * cores()):
            together = measured()
    assert np.allclose(np.log(together), np.log(alone), atol=np.log(2))


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """So many other programs that do nothing but use the cores."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
