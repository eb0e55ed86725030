"""Where the time of a round goes: parts that add up, and a table of all of them."""

from __future__ import annotations

import pytest
from benchmarks import round_parts
from benchmarks.round_parts import PARTS, Parts


def test_the_time_of_a_part_is_without_the_parts_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer one runs from 0 to 7, and the inner one from 1 to 3 and from 4 to 5."""
    clock = iter([0.0, 1.0, 3.0, 4.0, 5.0, 7.0])
    monkeypatch.setattr(round_parts.time, "perf_counter", lambda: next(clock))
    parts = Parts()
    inner = parts.timed("inner", lambda: None)
    outer = parts.timed("outer", lambda: (inner(), inner()))
    outer()
    assert parts.seconds == {"inner": 3.0, "outer": 4.0}


def test_every_part_of_a_round_is_timed_and_its_calls_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    functions = [getattr(owner, function) for owner, function in PARTS.values()]
    round_parts.main(["--rounds", "5", "--way", "stacked", "--device", "cpu"])
    assert functions == [getattr(owner, function) for owner, function in PARTS.values()]
    times, calls = capsys.readouterr().out.split("\n\n")
    timed = {line.split(" | ")[0].strip("| ") for line in times.splitlines()[2:]}
    assert timed == {*PARTS, "all"} - {"compiled steps"}
    assert "| aten::linalg_vector_norm | 2 |" in calls  # of the uploads, and of the model
