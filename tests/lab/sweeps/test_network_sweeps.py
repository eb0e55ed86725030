"""Sweeps over experiments on a simulated network: each is a run of its own, done once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fedsash import network
from fedsash.evaluation import Score
from fedsash.lab import config
from fedsash.lab.config import ConfigError, NetworkExperiment
from fedsash.lab.sweeps import execute, parse, plan
from fedsash.network import ConstantWindow
from fedsash.runs.records import Records
from support.experiments import trained
from support.observing import Evaluated
from support.worlds import ON_NETWORK

AXES: dict[str, Any] = {
    "seed": [0],
    "scheme": {
        "vanilla": {"scheduler": {"name": "synchronous"}, "rounds": 3},
        "W = 2": {"scheduler": {"name": "fedwindow", "window": 2}},
    },
}


def sweep(**base: Any) -> Any:
    return parse({"base": ON_NETWORK | base, "axes": AXES}, Path("nowhere"))


def test_the_axes_reach_the_network_and_its_scheduler_and_no_rounds_are_shared() -> None:
    found = parse({"base": ON_NETWORK, "axes": {"network.link.rate": [1e3, 1e4], "scheduler.window": [2, 3]}}, Path())
    runs = [run.experiment for run in found.runs]
    assert all(isinstance(run, NetworkExperiment) for run in runs)
    settings = [(run.network.link.rate, run.scheduler.window) for run in runs]  # type: ignore[attr-defined]
    assert settings == [(rate, ConstantWindow(w)) for rate in (1e3, 1e4) for w in (2, 3)]
    assert [segment.rounds for segment in plan(found.runs).segments] == [12] * 4
    with pytest.raises(ConfigError, match="must be one of synchronous, fedasync, fedbuff, fedwindow"):
        parse({"base": ON_NETWORK, "axes": {"scheduler.name": ["fedwindw"]}}, Path())


@pytest.mark.slow
def test_a_sweep_gives_the_runs_numbers_once_and_goes_on_with_what_was_stopped(tmp_path: Path) -> None:
    found = sweep()
    folders = [tmp_path / "runs" / run.name for run in found.runs]

    def press(round: int, metrics: list[Score]) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    for run, folder in zip(found.runs, folders, strict=True):
        assert trained(run.experiment, folder, [Evaluated(press)]).interrupted
        (folder / "mine").touch()
    done = execute(found, tmp_path, jobs=1, progress=False)
    assert done.failed == {} and not done.signal
    for run, folder in zip(found.runs, folders, strict=True):
        alone = trained(run.experiment)
        assert Records(folder).load().rows() == json.loads(json.dumps(alone.history.rows()))
        assert (folder / "mine").exists()
    before = [(folder / "summary.json").stat().st_mtime_ns for folder in folders]
    assert execute(found, tmp_path, jobs=1, progress=False).failed == {}
    assert [(folder / "summary.json").stat().st_mtime_ns for folder in folders] == before
    with pytest.raises(ConfigError, match="holds a run of another experiment"):
        execute(sweep(network=ON_NETWORK["network"] | {"timeout": 60.0}), tmp_path, progress=False)


def test_a_scheduler_of_ones_own_is_named_by_its_place() -> None:
    place = "fedsash.network.schedulers:FedBuff"
    found = config.parse({"scheduler": {"name": place, "size": 3}}, own_code=True)
    assert found.scheduler == network.FedBuff(3) and found.table()["scheduler"]["name"] == "fedbuff"


def test_a_sweep_of_studies_of_time_is_done_once(tmp_path: Path) -> None:
    time = {"network": {"learning": False, "bytes": 1000, "clients": {"count": 4}}, "scheduler": {"name": "fedasync"}}
    found = parse({"base": {"rounds": 5} | time, "axes": {"seed": [0, 1]}}, tmp_path)
    done = execute(found, tmp_path, jobs=1, progress=False)
    assert done.failed == {}
    written = [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("runs/*/summary.json"))]
    assert len(written) == 2 and execute(found, tmp_path, jobs=1, progress=False).failed == {}
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("runs/*/summary.json"))] == written


@pytest.mark.slow
def test_a_run_whose_time_was_over_is_done(tmp_path: Path) -> None:
    table = ON_NETWORK | {"network": ON_NETWORK["network"] | {"seconds": 6.0}}
    found = parse({"base": table, "axes": {"seed": [0]}}, tmp_path)
    assert execute(found, tmp_path, jobs=1, progress=False).failed == {}
    (summary,) = tmp_path.glob("runs/*/summary.json")
    assert json.loads(summary.read_text())["ended_early"] == "its simulated time was over"
    before = summary.stat().st_mtime_ns
    assert execute(found, tmp_path, jobs=1, progress=False).failed == {} and summary.stat().st_mtime_ns == before
