"""--stop-after: a run or a sweep stops within its time, with all saved, and goes on later to the same bytes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.lab.cli.arguments import duration
from fedsash.runs.time_limit import TIME_UP, TimeLimit, limited, time_limit
from fedsash.vector.saved import saved_rounds
from support.in_thread import in_process
from support.observing import Evaluated, final, go_on, observed, start
from support.sweeps import BASE, write


def slow(round: int, metrics: list[Score]) -> None:
    time.sleep(0.1)


def test_a_run_stops_within_its_time_and_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    start(observed(), 30, tmp_path / "whole")
    with limited(1.0):
        result = start(observed(), 10_000, tmp_path / "stopped", callbacks=[Evaluated(slow)])
    assert result.interrupted and result.signal == TIME_UP
    assert time_limit() is None
    assert 1 <= result.state.round <= 10  # each takes 0.1 s or more
    go_on(observed(), 30, tmp_path / "stopped")
    assert final(tmp_path / "stopped") == final(tmp_path / "whole")


def test_a_round_that_would_not_fit_is_not_begun() -> None:
    limit = TimeLimit(10.0)
    limit.tick()
    assert not limit.over
    limit.began -= 6.0
    limit.longest = 1.0
    assert not limit.over
    limit.longest = 1.5
    assert limit.over


def test_pieces_of_work_side_by_side_are_timed_each_by_itself() -> None:
    limit = TimeLimit(10.0)
    for name in ("a", "b", "a", "b"):
        limit.tick(name)
        time.sleep(0.02)
    assert 0.04 <= limit.longest < 1.0


PAUSE = """
import os
import time
from dataclasses import dataclass

from fedsash import Callback


@dataclass
class Pause(Callback):
    def round(self, run, report):
        time.sleep(float(os.environ["PAUSE"]))
"""


@pytest.mark.full
def test_a_sweep_stops_within_its_time_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pause.py").write_text(PAUSE)
    base = BASE | {"rounds": 100, "callbacks": {"pause": {"name": "pause:Pause"}}}
    file = write({"base": base, "axes": {"seed": [0]}}, tmp_path / "s.toml")
    command = ["sweep", str(file), "--out", str(tmp_path / "out"), "--own-code", "--jobs", "1"]
    with in_process(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        patch.syspath_prepend(tmp_path)
        patch.setenv("PAUSE", "0.3")
        began = time.monotonic()
        assert main([*command, "--stop-after", "12s"]) == 128 + TIME_UP
        assert time.monotonic() - began < 15  # all its rounds would take 30 seconds
        assert "the time is up: stopping after these rounds" in capsys.readouterr().out
        assert saved_rounds(tmp_path / "out" / "runs" / "seed=0" / "state")
        patch.setenv("PAUSE", "0")
        assert main(command) == 0


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("9m", 540), ("1.5h", 5400), ("90", 90)])
def test_times(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1m", "0", "nan", "inf", "5d"])
def test_a_text_that_is_no_time_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "x.toml", f"--stop-after={text}"])
    assert ended.value.code == 2
    assert "must be a time such as 90s, 9m or 1.5h" in capsys.readouterr().err
