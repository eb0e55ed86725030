"""A run of a sweep that a callback has stopped is a finished run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedsash.lab.sweeps import execute, load, plan
from support.observing import final

SWEEP = """
[base]
rounds = 30
partition.clients = 10
sampling.count = 2
engine = { workers = 1, threads = 1, compile = false }
evaluation = { every = 1, held_out = 0.3 }
averages.w = { name = "window", size = 2 }
track.tensorboard = {}

[base.callbacks.stop]
name = "early_stopping"
metric = "loss"
better = "higher"
patience = 3

[axes]
seed = [0, 1]
"""


def test_runs_with_callbacks_share_no_rounds_and_tracking_is_left_to_the_runs(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP.replace("seed = [0, 1]", '"averages.w.size" = [2, 3]'))
    assert plan(load(file).runs).to_train == 60
    shared = SWEEP.split("[base.callbacks.stop]")[0] + '[axes]\n"averages.w.size" = [2, 3]\n'
    file.write_text(shared)
    planned = plan(load(file).runs)
    assert planned.to_train == 30 and not planned.segments[0].experiment.track.chosen()
    assert all(segment.experiment.track.chosen() for segment in planned.segments[1:])


@pytest.mark.slow
def test_a_stopped_run_is_finished_and_not_trained_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "s"
    file.write_text(SWEEP)
    assert not execute(load(file), out, jobs=1).failed
    shown = capfd.readouterr().out
    summaries = [json.loads((out / "runs" / f"seed={i}" / "summary.json").read_text()) for i in (0, 1)]
    assert all(found["ended_early"] and found["rounds"] < 30 for found in summaries)
    for i, found in enumerate(summaries):
        assert re.search(rf"runs/seed={i}: .*%, ended after round {found['rounds']}\n", shown)
    last = shown.splitlines()[-1]
    assert last.startswith("round 60/60") and "left" not in last
    before = [final(out / "runs" / f"seed={i}") for i in (0, 1)]
    times = [(out / "runs" / f"seed={i}" / "summary.json").stat().st_mtime_ns for i in (0, 1)]
    assert not execute(load(file), out, jobs=1, progress=False).failed
    assert before == [final(out / "runs" / f"seed={i}") for i in (0, 1)]
    assert times == [(out / "runs" / f"seed={i}" / "summary.json").stat().st_mtime_ns for i in (0, 1)]
