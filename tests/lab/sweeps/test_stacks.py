"""Legs that are trained jointly: which ones, and that nothing but their speed depends on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab import runs
from fedsash.lab.config import load_run
from fedsash.lab.records import Records
from fedsash.lab.runs import Fork
from fedsash.lab.sweeps import execute, parse, plan
from fedsash.lab.sweeps.axes import Sweep
from fedsash.lab.sweeps.stacks import MOST, stacks
from fedsash.testing import close
from support.sweeps import BASE, contents, started, trains_into, wait_for, write

STACKED = BASE | {"engine": BASE["engine"] | {"kind": "vectorised"}, "checkpoint": {"every": 10}}
SEEDS = {"seed": [0, 1, 2, 3]}
PROX: dict[str, Any] = {f"mu{mu}": {"method": {"name": "fedprox", "mu": mu}} for mu in (0.1, 0.2)}


def sweep(axes: dict[str, Any], **more: Any) -> Sweep:
    return parse({"base": STACKED | more, "axes": axes}, Path())


def sizes(axes: dict[str, Any], slots: int = 1, **more: Any) -> list[int]:
    return [len(stack) for stack in stacks(plan(sweep(axes, **more).runs).legs, slots)]


# Which legs are trained jointly.


@pytest.mark.parametrize(
    "axes",
    [
        SEEDS,
        {"local.lr": [0.1, 0.2, 0.3, 0.4]},
        {"method": PROX, "partition_seed": [0, 1]},
        {"server.lr": [0.5, 1.0], "aggregation": [{"name": "mean"}, {"name": "fednova"}]},
        {"partition.alpha": [0.1, 0.2], "evaluation.every": [1, 2]},
    ],
)
def test_runs_are_stacked_that_differ_in_inputs_of_their_steps_and_in_what_the_server_does(axes: Any) -> None:
    assert sizes(axes) == [4]


@pytest.mark.parametrize(
    "axes",
    [
        {"model.hidden": [[8], [4]]},
        {"local.batch": [5, 10]},
        {"local.optimiser": [{"name": "sgd"}, {"name": "adam"}]},
        {"method": [{"name": "fedavg"}, {"name": "scaffold"}]},
        {"rounds": [3, 6]},
        {"sampling.count": [2, 3]},
    ],
)
def test_runs_that_compute_with_other_things_are_not_stacked(axes: Any) -> None:
    assert sizes(axes) == [1, 1]


def test_runs_of_engines_callbacks_or_a_network_that_can_not_be_stacked_are_alone() -> None:
    assert sizes(SEEDS, engine=BASE["engine"]) == [1] * 4
    assert sizes(SEEDS, track="tensorboard") == [1] * 4
    assert sizes(SEEDS, network={}, sampling={"name": "uniform", "fraction": 1.0}) == [1] * 4


def test_every_slot_has_a_stack_and_no_stack_is_too_large() -> None:
    assert sizes(SEEDS, 2) == [2, 2]
    assert sizes({"seed": [*range(7)]}, 3) == [3, 2, 2]
    assert sizes({"seed": [*range(2)]}, 3) == [1, 1]
    assert max(sizes({"seed": [*range(2 * MOST + 1)]}, 2)) == MOST - 5


def test_legs_are_stacked_that_begin_in_the_same_round() -> None:
    ima = {"off": {}, "on": {"broadcast": {"average": "ima", "start": 3}}}
    assert sizes({"seed": [0, 1], "ima": ima}) == [2, 4]


# What is trained.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared beginnings, of which each is continued by two runs; all of them joint."""
    out = tmp_path_factory.mktemp("stacked")
    ima = {"off": {}, "on": {"broadcast": {"average": "ima", "start": 3}}}
    executed = execute(sweep({"seed": [0, 1], "method": PROX, "ima": ima}), out, jobs=1, progress=False)
    assert not executed.failed and not executed.signal
    return out


def groups(out: Path) -> list[Any]:
    return [group for file in (out / "stacks").glob("*.json") for group in json.loads(file.read_text())["groups"]]


def test_they_are_trained_jointly(trained: Path) -> None:
    assert sorted(len(group["legs"]) for group in groups(trained) if group["shape"]) == [4, 8]


def test_each_has_the_results_of_a_run_of_its_own(trained: Path, tmp_path: Path) -> None:
    """In float32, up to rounding."""
    for name in ("seed=0,mu0.1,off", "seed=1,mu0.2,on"):
        folder = trained / "runs" / name
        experiment = load_run(folder)
        runs.run(experiment.federation(), 6, out=tmp_path / name, progress=False)
        assert close(folder, tmp_path / name, 1e-5)
        kept, own = (json.loads((at / "engine.json").read_text()) for at in (folder, tmp_path / name))
        assert kept == own


def test_one_of_them_can_go_on_alone_and_be_forked(trained: Path, tmp_path: Path) -> None:
    folder = trained / "runs" / "seed=0,mu0.1,on"
    experiment = load_run(folder)
    whole = runs.run(experiment.federation(), 9, progress=False)
    forked = runs.run(experiment.federation(), 9, fork=Fork(folder, 6), progress=False)
    resumed = runs.resume(experiment.federation(), 9, folder, progress=False)
    assert close(resumed.state.w, whole.state.w, 1e-5) and close(forked.state.w, whole.state.w, 1e-5)


@pytest.mark.slow
def test_a_leg_that_fails_harms_no_other(tmp_path: Path) -> None:
    executed = execute(sweep({"partition.clients": [10, 5000, 20]}), tmp_path, jobs=1, progress=False)
    assert list(executed.failed) == ["clients=5000"]
    (group,) = groups(tmp_path)
    assert group["legs"] == ["runs/clients=10", "runs/clients=20"]
    again = execute(sweep({"partition.clients": [10, 5000, 20]}), tmp_path, jobs=1, progress=False)
    assert list(again.failed) == ["clients=5000"]


# However it is stopped.

LONG = STACKED | {"rounds": 200}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    execute(parse({"base": LONG, "axes": SEEDS}, Path()), out, jobs=2, progress=False)
    assert [len(group["legs"]) for group in groups(out) if group["shape"]] == [2, 2]
    return out


def begun(tmp_path: Path) -> tuple[Path, Path, subprocess.Popen[str]]:
    """A sweep in a process of its own, in which all runs are trained."""
    file, out = write({"base": LONG, "axes": SEEDS}, tmp_path / "s.toml"), tmp_path / "out"
    process = started(file, out)
    wait_for(lambda: sum(len(Records(folder).load()) > 20 for folder in (out / "runs").glob("*")) == 4)
    return file, out, process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stacked_sweep_that_was_stopped_or_killed_ends_with_the_same_bytes(
    number: int, whole: Path, tmp_path: Path
) -> None:
    file, out, process = begun(tmp_path)
    os.kill(process.pid, number)
    process.wait()
    wait_for(lambda: not trains_into(out))
    ended = [*(out / "runs").glob("*/summary.json")]
    assert number == signal.SIGTERM or len(ended) < 4, "one of two processes may be far ahead"
    assert started(file, out).wait() == 0
    for run in (whole / "runs").iterdir():
        assert contents(out / "runs" / run.name) == contents(run)


@pytest.mark.slow
def test_if_a_process_is_killed_its_runs_are_trained_alone(whole: Path, tmp_path: Path) -> None:
    _, out, process = begun(tmp_path)
    os.kill(trains_into(out)[0], signal.SIGKILL)
    said, _ = process.communicate()
    assert process.returncode == 0
    assert "runs has died (killed by SIGKILL" in " ".join(said.split()) and "they go on, each alone" in said
    for run in (whole / "runs").iterdir():
        assert close(out / "runs" / run.name, run, 1e-4)
