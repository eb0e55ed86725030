"""How `auto` chooses an engine from what was measured."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.engines.auto import (
    CLOSE,
    Candidate,
    candidates,
    choose,
    compare,
    duration,
    resolve,
)
from fedsash.engines.processes import threads
from fedsash.engines.timings import MOST_CALLS, Timings, _of_steps, measured, shortest
from fedsash.engines.training import ClientWork
from fedsash.engines.workers import dealt
from fedsash.methods.sampling import Uniform
from fedsash.system.machine import core_count
from fedsash.testing.worlds import small_data, small_federation, small_model
from fedsash.vector.sharing import Personal
from support.by_default import rotated, some
from support.limits import small_memory

ALONE = LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="contiguous", threads=1)
SPLIT = LocalEngine("vectorised", workers=2, block=5, compile=False, memory_format="contiguous", threads=1)


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=6))
def test_what_is_chosen_is_about_as_good_as_the_fastest_and_nothing_simpler_is(seconds: list[float]) -> None:
    compared = [Candidate(ALONE, 1.0, each) for each in seconds]
    best = choose(compared)
    assert best.seconds <= CLOSE * min(seconds)
    assert all(simpler.seconds >= CLOSE * min(seconds) for simpler in compared[: compared.index(best)])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00123, "1.23 ms"), (0.0999, "99.9 ms"), (0.105, "0.10 s"), (1.09, "1.09 s"), (99.0, "99.00 s")],
)
def test_the_time_of_a_round_has_no_powers_of_ten(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_first_step_that_imports_or_compiles_counts_nothing() -> None:
    calls = list[int]()
    seconds = 0.0

    def step() -> None:
        nonlocal seconds
        calls.append(len(calls))
        seconds += 1e-4 if len(calls) > 1 else 0.5

    assert shortest(step, lambda: seconds) == pytest.approx(1e-4) and len(calls) == MOST_CALLS + 1

    def long() -> None:
        nonlocal seconds
        calls.append(0)
        seconds += 3.0

    calls.clear()
    assert shortest(long, lambda: seconds) == 3.0 and len(calls) == 2, "a long step is timed once"


def test_a_personal_part_by_itself_is_no_part_of_a_step(work: ClientWork) -> None:
    sharing = replace(work.training.sharing, personal=Personal(("3",), alone=5))
    assert _of_steps(replace(work, training=replace(work.training, sharing=sharing)), 1).steps.tolist() == [1] * 6


@pytest.fixture(autouse=True)
def _short_timings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured need not be exact here, but where a test says that it takes long."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr("fedsash.engines.timings.ENOUGH", 0.01)


@pytest.fixture
def work() -> Iterator[ClientWork]:
    with small_federation(model=small_model(dtype=torch.float32), engine=LocalEngine()) as world:
        yield ClientWork(world.training(), small_data())


def test_what_was_measured_is_kept_for_the_next_run(work: ClientWork, cache: Path) -> None:
    with threads(2):  # one more to choose from than tests have
        first, notes = resolve(LocalEngine(), work)
        (file,) = (cache / "engines").iterdir()
        content = file.read_bytes()
        second, again = resolve(LocalEngine(), work)
    assert second == first and file.read_bytes() == content
    assert again == [f"{notes[0]} (measured in an earlier run)"]


@pytest.mark.parametrize(
    "content", rotated(["{", "[]", '{"a": [1, 1, Infinity]}', '{"a": 1}', "", '{"a": ["b", "c", "d"]}', "\0"], turns=2)
)
def test_a_damaged_file_is_measured_again(content: str, work: ClientWork, cache: Path) -> None:
    file = Timings(work)._file
    file.parent.mkdir(parents=True)
    file.write_text(content)
    _, (line,) = resolve(LocalEngine(), work)
    assert "earlier" not in line and file.read_text() != content


def test_a_folder_that_cannot_be_written_is_said_and_changes_nothing(
    work: ClientWork, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file")
    assert resolve(LocalEngine(), work)[0].resolved
    assert caplog.messages[0].startswith("what was measured can't be kept (")


def test_a_training_that_differs_only_in_its_numbers_shares_what_was_measured(work: ClientWork, cache: Path) -> None:
    training = work.training
    resolve(LocalEngine(), work)
    other = replace(training, local=replace(training.local, lr=0.01, epochs=7), seed=3)
    resolve(LocalEngine(), replace(work, training=other))
    assert len(list((cache / "engines").iterdir())) == 1
    resolve(LocalEngine(), replace(work, training=replace(other, local=replace(training.local, batch=3))))
    assert len(list((cache / "engines").iterdir())) == 2


class Edited(nn.Module):
    """A model whose `forward` is edited between two runs: then it can't be stacked."""

    looks = False

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_model(dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if not type(self).looks or float(x.sum()) < 1e9 else x


@pytest.mark.parametrize("shown", some([True, False], True), ids=["by two samples", "by the first steps"])
def test_a_model_whose_code_is_edited_so_that_it_can_not_be_stacked_is_measured_again(
    shown: bool, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_federation(model=Edited(), engine=LocalEngine()) as world:
        world.prepare()
    (file,) = (cache / "engines").iterdir()
    kept = json.loads(file.read_text())
    faster = {name: 1e-4 if name.startswith("vectorised") else 1.0 for name in kept}
    file.write_text(json.dumps({name: seconds * faster[name] for name, seconds in kept.items()}))
    monkeypatch.setattr(Edited, "looks", True)
    if not shown:
        monkeypatch.setattr(ClientWork, "check_stackable", lambda work: None)
    with small_federation(model=Edited(), engine=LocalEngine()) as world:
        notes = list(world.prepare())
        assert any("can't be vectorised" in note for note in notes)
        world.round(world.start())


def test_a_choice_among_compiled_engines_needs_no_trial_of_single_clients(work: ClientWork, cache: Path) -> None:
    assert {option.engine.kind for option in candidates(LocalEngine(compile=True), work)} == {"vectorised"}


class Drawing(nn.Module):
    """A model that draws from PyTorch's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_model(dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.inner(x + 0.1 * torch.rand_like(x))
        return output


def test_a_run_draws_as_if_nothing_had_been_timed(cache: Path) -> None:
    with small_federation(model=Drawing(), engine=LocalEngine()) as world:
        work = ClientWork(world.training(), small_data())
        before = torch.get_rng_state()
        resolve(LocalEngine(), work)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
def test_a_stack_that_memory_does_not_hold_is_left_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsash.engines.auto.SLOW_STEP", 1e9)
    x = torch.zeros(200, 1500)
    data = FederatedData.from_arrays(x, torch.arange(200) % 3, [[i, i + 1] for i in range(0, 200, 2)], classes=3)
    model = nn.Sequential(nn.Linear(1500, 1500), nn.Linear(1500, 3))  # of 9 MB: 100 of them are 900 MB
    engine = LocalEngine(workers=1, threads=1)
    with small_federation(model=model, data=data, sampling=Uniform(100), engine=engine) as world:
        work = ClientWork(world.training(), data)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        with small_memory(used + 600 * 2**20):
            chosen, notes = resolve(engine, work)
    assert chosen.kind == "sequential"
    assert notes[0].startswith("engine: vectorised over 100 clients on 1 thread, contiguous: left out (")
    assert "allocate" in notes[0] and "1 thread" in notes[1]


@pytest.mark.slow
def test_compiled_steps_are_timed_where_a_run_may_repay_them(
    work: ClientWork, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are compiled and run; what they take is written down, for it depends on the machine's load."""
    seconds = {"sequential": 4e-3, "vectorised": 4e-3, "compiled": 1e-3}

    def measured_once(engine: LocalEngine, work: ClientWork) -> float:
        assert measured(engine, work) > 0
        return seconds["compiled" if engine.compile is True else engine.kind]

    monkeypatch.setattr("fedsash.engines.timings.measured", measured_once)
    short, _ = resolve(LocalEngine(), work, rounds=10)
    long, notes = resolve(LocalEngine(), work, rounds=10**7)
    assert short.compile is False and long.compile is True and "and compiled" in notes[0]
    assert resolve(LocalEngine(), work, rounds=10)[0] == short


@pytest.mark.slow
def test_what_is_measured_while_other_programs_use_the_cores_is_what_was_measured_before(
    work: ClientWork, cache: Path
) -> None:
    def measured() -> list[float]:
        options = candidates(LocalEngine(workers=1, threads=1), work)
        return [candidate.seconds for candidate in compare(options, Timings(work), on_cpu=True)]

    alone = measured()
    with busy_cores(3 * core_count()):
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


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 6))
def test_pieces_are_dealt_once_and_nobody_has_more_than_a_share_and_one_piece(costs: list[int], count: int) -> None:
    shares = dealt(costs, count)
    assert len(shares) == count and all(share == sorted(share) for share in shares)
    assert sorted(piece for share in shares for piece in share) == list(range(len(costs)))
    loads = [sum(costs[piece] for piece in share) for share in shares]
    assert max(loads) <= sum(costs) / count + max(costs, default=0)
