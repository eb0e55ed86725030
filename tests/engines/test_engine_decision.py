"""The decision of `auto`, given the timings: which engine is the best, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from fedsash.engines import LocalEngine
from fedsash.engines.auto import MESSAGE, Candidate, _left_out, choose, compare, compiled
from fedsash.engines.timings import Timings
from fedsash.settings.errors import SettingError

ALONE = LocalEngine("sequential", workers=1, block=1, memory_format="contiguous", threads=1, compile=False)
TWO_THREADS = LocalEngine("sequential", workers=1, block=1, memory_format="contiguous", threads=2, compile=False)
TWO_PROCESSES = LocalEngine("sequential", workers=2, block=1, memory_format="contiguous", threads=1, compile=False)
STACKED = LocalEngine("vectorised", workers=1, block=10, memory_format="contiguous", threads=1, compile=False)
HALVES = LocalEngine("vectorised", workers=2, block=5, memory_format="contiguous", threads=1, compile=False)
NAMES = {"alone": ALONE, "threads": TWO_THREADS, "processes": TWO_PROCESSES, "stacked": STACKED, "halves": HALVES}
STEPS = {"alone": 100.0, "threads": 100.0, "processes": 50.0, "stacked": 10.0, "halves": 10.0}
"""Ten clients take ten steps each."""


@dataclass
class GivenTimings(Timings):
    """Timings that are written down: a number is a step's time, an exception is what its timing ends in."""

    table: Mapping[str, float | Exception]
    earlier: tuple[str, ...] = ()
    timed: list[str] = field(default_factory=list)

    def of(self, engine: LocalEngine) -> float:
        name = self.name(engine)
        self.timed.append(name)
        seconds = self.table[name]
        if isinstance(seconds, Exception):
            raise seconds
        return seconds

    def known(self, engine: LocalEngine) -> bool:
        return self.name(engine) in self.earlier

    @staticmethod
    def name(engine: LocalEngine) -> str:
        if engine.kind == "vectorised":
            return "compiled" if engine.compile else ("stacked" if engine.block == 10 else "halves")
        return "threads" if engine.threads == 2 else "alone"


def decision(
    table: Mapping[str, float | Exception],
    names: str = "alone threads processes stacked halves",
    rounds: int = 0,
    on_cpu: bool = True,
    earlier: tuple[str, ...] = (),
) -> tuple[list[Candidate], list[str]]:
    timings = GivenTimings(table, earlier)
    options = [Candidate(NAMES[name], STEPS[name]) for name in names.split()]
    compared = compare(options, timings, on_cpu=on_cpu)
    return compared + compiled(compared, timings, rounds), timings.timed


QUICK = {"alone": 2e-4, "threads": 2e-4, "stacked": 8e-4, "halves": 5e-4, "compiled": 1e-4}
MIDDLE = {"alone": 2e-3, "threads": 2e-3, "stacked": 0.05, "halves": 0.025}
SLOW = {"alone": 0.02, "threads": 0.012}


@pytest.mark.parametrize(
    ("table", "settings", "best", "with_compiled_steps", "seconds"),
    [
        pytest.param({"alone": 1.0}, {"names": "alone"}, "alone", False, 100.0, id="the only one"),
        pytest.param(SLOW, {}, "processes", False, 50 * 0.02 + MESSAGE, id="slow steps: processes, no stack is timed"),
        pytest.param(SLOW | {"threads": 0.0104}, {}, "threads", False, 1.04, id="within 5 %: the simpler one"),
        pytest.param(SLOW | {"threads": 0.0106}, {}, "processes", False, 1.0 + MESSAGE, id="not within 5 %"),
        pytest.param(MIDDLE, {}, "processes", False, 0.1 + MESSAGE, id="the first stack is too slow"),
        pytest.param(
            MIDDLE | {"stacked": 0.03, "halves": 0.005}, {}, "halves", False, 0.05 + MESSAGE, id="the second is not"
        ),
        pytest.param(
            {"alone": 0.02, "threads": 0.02, "stacked": 0.03, "halves": 0.03},
            {"on_cpu": False},
            "stacked",
            False,
            0.3,
            id="a GPU's stacks are always timed",
        ),
        pytest.param(QUICK, {}, "halves", False, 5e-3 + MESSAGE, id="quick steps in stacks"),
        pytest.param(
            QUICK | {"stacked": 0.02}, {}, "halves", False, 5e-3 + MESSAGE, id="quick steps: all stacks are timed"
        ),
        pytest.param(QUICK, {"rounds": 100}, "halves", False, 5e-3 + MESSAGE, id="too short to be compiled"),
        pytest.param(QUICK, {"rounds": 10_000}, "halves", True, 1e-3 + MESSAGE, id="long enough to be compiled"),
        pytest.param(
            QUICK | {"compiled": 4.9e-4},
            {"rounds": 10_000},
            "halves",
            False,
            5e-3 + MESSAGE,
            id="compiling gains little",
        ),
        pytest.param(
            QUICK, {"rounds": 5_000}, "halves", False, 5e-3 + MESSAGE, id="too short for the gain that is expected"
        ),
        pytest.param(
            QUICK,
            {"rounds": 5_000, "earlier": ("compiled",)},
            "halves",
            True,
            1e-3 + MESSAGE,
            id="long enough for the gain that is known",
        ),
        pytest.param(
            QUICK,
            {"rounds": 1_000, "earlier": ("compiled",)},
            "halves",
            True,
            1e-3 + MESSAGE,
            id="long enough to load code that is there",
        ),
        pytest.param(
            QUICK,
            {"rounds": 500, "earlier": ("compiled",)},
            "halves",
            False,
            5e-3 + MESSAGE,
            id="too short to load code that is there",
        ),
    ],
)
def test_the_best_engine_follows_from_the_timings(
    table: dict[str, float], settings: dict[str, object], best: str, with_compiled_steps: bool, seconds: float
) -> None:
    candidates, _ = decision(table, **settings)  # type: ignore[arg-type]
    assert choose(candidates).engine == replace(NAMES[best], compile=with_compiled_steps)
    assert choose(candidates).seconds == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("table", "timed"),
    [
        (SLOW, "alone threads alone"),
        (MIDDLE, "alone threads alone stacked"),
        (QUICK, "alone threads alone stacked halves"),
    ],
    ids=["slow", "middle", "quick"],
)
def test_stacks_are_timed_only_while_they_may_gain_something(table: dict[str, float], timed: str) -> None:
    _, order = decision(table)
    assert order == timed.split()


MEMORY = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 800 bytes")
STUBBORN = RuntimeError("vmap: .item() is not supported\n and more")


@pytest.mark.parametrize(
    ("failures", "best", "lines"),
    [
        (
            {"stacked": MEMORY},
            "halves",
            [
                "engine: vectorised over 10 clients on 1 thread, contiguous: left out (DefaultCPUAllocator: "
                "can't allocate memory: you tried to allocate 800 bytes)"
            ],
        ),
        (
            {"stacked": MEMORY, "halves": MEMORY},
            "processes",
            [
                "engine: vectorised over 10 clients on 1 thread, contiguous: left out (DefaultCPUAllocator: "
                "can't allocate memory: you tried to allocate 800 bytes)",
                "engine: vectorised over 5 clients in 2 processes, contiguous: left out (DefaultCPUAllocator: "
                "can't allocate memory: you tried to allocate 800 bytes)",
            ],
        ),
        (
            {"stacked": MemoryError()},
            "halves",
            ["engine: vectorised over 10 clients on 1 thread, contiguous: left out (MemoryError)"],
        ),
        (
            {"stacked": STUBBORN, "halves": STUBBORN},
            "processes",
            [
                "engine: this model can't be vectorised over clients (vmap: .item() is not supported and more); "
                "training one client at a time"
            ],
        ),
        (
            {"threads": TypeError("no")},
            "halves",
            ["engine: one client at a time on 2 threads, contiguous: left out (no)"],
        ),
    ],
    ids=[
        "short of memory",
        "short of it for all stacks",
        "a plain MemoryError",
        "can't be stacked",
        "any other exception",
    ],
)
def test_what_ends_in_an_exception_is_left_out_with_a_line(
    failures: dict[str, Exception], best: str, lines: list[str]
) -> None:
    candidates, _ = decision({**QUICK, **failures})
    assert choose(candidates).engine == NAMES[best]
    assert _left_out(candidates) == lines


def test_steps_that_can_not_be_compiled_run_uncompiled_with_a_line() -> None:
    cause = NotImplementedError()
    error = SettingError("LocalEngine", "compile", True, "PyTorch can't compile these steps")
    error.__cause__ = cause
    for failure, reason in (
        (RuntimeError("a bug\n  of the compiler"), "a bug of the compiler"),
        (error, "NotImplementedError"),
    ):
        candidates, _ = decision(QUICK | {"compiled": failure}, rounds=10**7)
        assert choose(candidates).engine == HALVES
        assert _left_out(candidates) == [f"engine: local steps can't be compiled ({reason}); they run uncompiled"]


def test_if_nothing_can_be_timed_there_is_no_candidate() -> None:
    first = ValueError("labels")
    candidates, _ = decision(dict.fromkeys(QUICK, STUBBORN) | {"alone": first})
    assert choose(candidates).error is first and {candidate.seconds for candidate in candidates} == {math.inf}


def test_an_error_for_users_ends_the_choice() -> None:
    wrong = SettingError("LocalEngine", "precision", "bfloat16", "needs a model of float32")
    with pytest.raises(SettingError, match="precision"):
        decision(QUICK | {"alone": wrong})


def test_demanded_compiled_steps_stand_for_themselves() -> None:
    option = Candidate(replace(STACKED, compile=True), 10.0)
    (candidate,) = compare([option], GivenTimings({"stacked": 1.0}), on_cpu=True)
    assert candidate == replace(option, step=1.0)
