"""A sweep over a Ray cluster of which something dies: nothing is lost, and the bytes stay the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fedsash.lab.sweeps import execute, parse
from fedsash.runs.records import Records
from support.clusters import WITHOUT_RAY, started_machines
from support.sweeps import BASE, contents, started, trains_into, wait_for, write

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
pytestmark = pytest.mark.slow

LONG: dict[str, Any] = {"base": BASE | {"rounds": 300, "checkpoint": {"every": 10}}, "axes": {"seed": [0, 1]}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    assert not execute(parse(LONG, Path()), out, progress=False).failed
    return out


def same(out: Path, whole: Path) -> bool:
    return all(contents(out / "runs" / run.name) == contents(run) for run in (whole / "runs").iterdir())


def are_under_way(out: Path) -> bool:
    return sum(len(Records(folder).load().rows()) > 20 for folder in (out / "runs").glob("*")) == 2


def begun(tmp_path: Path, table: dict[str, Any], *more: str) -> tuple[Path, subprocess.Popen[str]]:
    out = tmp_path / "out"
    process = started(write(table, tmp_path / "s.toml"), out, "--cluster", "local", *more)
    wait_for(lambda: are_under_way(out))
    return out, process


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("whose", ["process", "actor"])
def test_a_run_whose_process_or_actor_is_killed_goes_on_in_another_one(whose: str, whole: Path, tmp_path: Path) -> None:
    out, process = begun(tmp_path, LONG)
    job = trains_into(out)[0]
    os.kill(job if whose == "process" else parent_of(job), signal.SIGKILL)
    said, _ = process.communicate()
    assert process.returncode == 0
    why = {"process": "killed by SIGKILL, out of memory perhaps", "actor": "its actor died"}[whose]
    assert f"a process has died ({why}" in " ".join(said.split()) and "another one goes on" in said
    assert same(out, whole)


def test_a_run_that_loses_three_processes_has_failed_and_the_other_goes_on(whole: Path, tmp_path: Path) -> None:
    out, process = begun(tmp_path, LONG, "--jobs", "1")
    for _ in range(3):
        wait_for(lambda: trains_into(out))
        job = trains_into(out)[0]
        os.kill(job, signal.SIGKILL)
        wait_for(lambda: job not in trains_into(out))  # noqa: B023
    said, _ = process.communicate()
    assert process.returncode == 2 and said.count("another one goes on") == 2
    assert len(json.loads((out / "sweep.json").read_text())["failed"]) == 1
    assert started(tmp_path / "s.toml", out).wait() == 0 and same(out, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_was_stopped_or_killed_goes_on(number: int, whole: Path, tmp_path: Path) -> None:
    out, process = begun(tmp_path, LONG)
    os.kill(process.pid, number)
    assert process.wait() == (-number if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: not trains_into(out))
    assert not list((out / "runs").glob("*/summary.json")) or number == signal.SIGINT
    assert started(tmp_path / "s.toml", out, "--cluster", "local").wait() == 0
    assert same(out, whole)


@pytest.fixture
def machines() -> Iterator[Any]:
    with started_machines() as machines:
        yield machines


def test_the_runs_of_a_machine_that_goes_are_trained_by_another_one(
    machines: Any, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = machines.add_node(num_cpus=1)

    def remove() -> None:
        wait_for(lambda: are_under_way(tmp_path))
        machines.remove_node(second, allow_graceful=False)

    remover = Thread(target=remove)
    remover.start()
    executed = execute(parse(LONG, Path()), tmp_path, cluster=machines.address)
    remover.join()
    assert executed.failed == {} and same(tmp_path, whole)
    assert capsys.readouterr().out.count("another one goes on") == 1
