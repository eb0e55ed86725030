"""Sweeps that go on: to more rounds, with more runs, or without what they have shared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError
from fedsash.lab.report.collect import collect
from fedsash.lab.sweeps import Plan, execute
from fedsash.lab.sweeps.execute import planned
from fedsash.lab.sweeps.scheduling import done, trained
from support.sweeps import BASE, IMA, contents, sweep, write


def left(plan: Plan, out: Path) -> int:
    """The rounds that are left to train."""
    return plan.to_train - trained(plan.segments, out, done(plan.segments, out))


def test_runs_go_on_to_more_rounds_with_the_bytes_of_longer_ones(tmp_path: Path) -> None:
    """Also those that shared all their rounds, and would now part later, and those that parted."""
    base = BASE | {"evaluation": {"every": 1, "last": 2}}
    late = {"broadcast": {"average": "ima", "start": 5}}
    axes = {"ima": {"off": {}, "size": {"averages": {"ima": {"size": 1}}}, "t2": IMA["t2"], "t5": late}}
    longer, shorter = sweep(axes, base=base), sweep(axes, base=base | {"rounds": 4})
    assert not execute(shorter, tmp_path / "grown", jobs=1, progress=False).failed
    before = {path.name for path in (tmp_path / "grown" / "shared").iterdir()}
    assert not execute(longer, tmp_path / "grown", jobs=1, progress=False).failed
    assert {path.name for path in (tmp_path / "grown" / "shared").iterdir()} == before, "nothing was trained anew"
    assert not execute(longer, tmp_path / "whole", jobs=1, progress=False).failed
    for run in longer.runs:
        assert contents(tmp_path / "grown/runs" / run.name) == contents(tmp_path / "whole/runs" / run.name)
    with pytest.raises(ConfigError, match="holds a run of another experiment: rounds is 6 there and 4 here"):
        execute(shorter, tmp_path / "grown", progress=False)


def test_what_was_shared_stays_shared_if_runs_are_added_or_a_file_is_lost(tmp_path: Path) -> None:
    execute(sweep({"averages.ima.size": [1, 2]}), tmp_path, jobs=1, progress=False)
    more = sweep({"averages.ima.size": [1, 2, 3, 4]})
    execute(more, tmp_path, jobs=1, progress=False)
    shutil.rmtree(tmp_path / "runs" / "size=4")  # as if stopped before it
    assert not left(planned(more, tmp_path), tmp_path)
    for file in tmp_path.glob("shared/*/models/*"):
        file.unlink()
    again = planned(more, tmp_path)
    (shared,) = (segment for segment in again.segments if segment.shared)
    parents = {
        segment.folder: segment.parent and segment.parent.folder for segment in again.segments if not segment.shared
    }
    alone = {f"runs/size={n}": None for n in (1, 2, 3)}
    assert shared.runs == ("size=4",) and parents == alone | {"runs/size=4": shared.folder}
    assert not left(again, tmp_path), "its last session is repeated"


def test_callbacks_have_seen_the_end_of_runs_with_fewer_rounds(tmp_path: Path) -> None:
    stop = BASE | {"callbacks": {"stop": {"name": "early_stopping", "patience": 9}}, "evaluation": {"held_out": 0.2}}
    assert not execute(sweep({"seed": [0]}, base=stop), tmp_path, jobs=1, progress=False).failed
    with pytest.raises(ConfigError, match="rounds is 6 there and 8 here"):
        execute(sweep({"seed": [0]}, base=stop | {"rounds": 8}), tmp_path, jobs=1, progress=False)


@pytest.mark.slow
def test_a_sweep_that_grows_has_finished_runs_when_they_have_the_rounds_that_it_asks_for(tmp_path: Path) -> None:
    file = write({"base": BASE, "axes": {"seed": [0, 1]}}, tmp_path / "s.toml")
    command, out = ["sweep", str(file), "--no-progress", "--jobs", "1"], tmp_path / "out"
    assert main([*command, "--out", str(out), "--set", "rounds=2"]) == 0
    assert main([*command, "--out", str(out), "--only", "seed=0"]) == 2, "others are shorter"
    shutil.copytree(out, tmp_path / "half")
    assert main([*command, "--out", str(out)]) == 0
    for file in ("metrics.jsonl", "summary.json", "config.toml"):  # as if stopped before it
        shutil.copy(tmp_path / "half" / "runs" / "seed=1" / file, out / "runs" / "seed=1" / file)
    finished = {run.name: run.finished for run in collect([out]).runs}
    assert finished == {"seed=0": True, "seed=1": False}


def test_runs_whose_shared_rounds_were_removed_are_done(tmp_path: Path) -> None:
    found = sweep({"averages.ima.size": [1, 2]})
    assert not execute(found, tmp_path, jobs=1, progress=False).failed
    shutil.rmtree(tmp_path / "shared")
    assert [segment.folder for segment in planned(found, tmp_path).segments] == ["runs/size=1", "runs/size=2"]
    assert not execute(found, tmp_path, jobs=1, progress=False).failed
    assert not (tmp_path / "shared").exists()
