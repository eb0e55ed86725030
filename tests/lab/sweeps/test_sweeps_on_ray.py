"""Sweeps over a Ray cluster that runs on this machine: the same runs, byte by byte, and what is refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab.config import ConfigError
from fedsash.lab.sweeps import Sweep, execute, parse
from fedsash.settings.errors import SettingError
from support.clusters import cluster  # noqa: F401
from support.sweeps import BASE, contents

pytestmark = pytest.mark.slow

IMA = {"off": {}, "t3": {"broadcast": {"average": "ima", "start": 4}}}


def sweep(axes: dict[str, Any], **more: Any) -> Sweep:
    return parse({"base": BASE | more, "axes": axes}, Path())


def on_cluster(what: Sweep, out: Path, jobs: int | None = None) -> dict[str, str]:
    executed = execute(what, out, jobs, progress=False, cluster="local")
    assert not executed.signal
    return executed.failed


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shared beginnings, each continued by two runs, in two processes."""
    out = tmp_path_factory.mktemp("cluster")
    assert on_cluster(sweep({"seed": [0, 1], "ima": IMA}), out, 2) == {}
    return out


def test_runs_have_the_bytes_of_a_sweep_on_one_machine(trained: Path, tmp_path: Path) -> None:
    execute(sweep({"seed": [0, 1], "ima": IMA}), tmp_path, progress=False)
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 4 and len(list((trained / "shared").iterdir())) == 2
    for run in runs:
        assert contents(trained / "runs" / run.name) == contents(run)
    assert {file.name for file in (trained / "logs").iterdir()} == {f"{socket.gethostname()}-{i}.txt" for i in (0, 1)}


def test_what_is_finished_is_not_trained_again_here_or_there(trained: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in trained.rglob("*.*") if file.name != "sweep.json"}
    assert on_cluster(sweep({"seed": [0, 1], "ima": IMA}), trained) == {}
    assert execute(sweep({"seed": [0, 1], "ima": IMA}), trained, progress=False).failed == {}
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_a_sweep_that_began_here_goes_on_there(tmp_path: Path, trained: Path) -> None:
    execute(sweep({"seed": [0], "ima": {"off": {}}}), tmp_path / "begun", progress=False)
    assert on_cluster(sweep({"seed": [0, 1], "ima": IMA}), tmp_path / "begun", 4) == {}
    for run in (trained / "runs").iterdir():
        assert contents(tmp_path / "begun/runs" / run.name) == contents(run)


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    failed = on_cluster(sweep({"partition.clients": [10, 5000]}), tmp_path)
    assert list(failed) == ["clients=5000"] and "5000" in failed["clients=5000"]
    assert (tmp_path / "runs/clients=10/summary.json").exists()


@pytest.mark.parametrize(
    "more, line",
    [
        ({"engine": {"kind": "ray"}}, "engine.kind = 'ray': a sweep over a cluster needs an engine of one machine"),
        ({"device": "cuda"}, "device = 'cuda': a sweep over a cluster trains on the CPU"),
    ],
)
def test_what_does_not_fit_a_cluster_is_refused_in_a_line(more: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=line):
        on_cluster(sweep({"seed": [0, 1]}, **more), tmp_path)


def test_an_engine_of_ones_own_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a name and no kind."""
    code = "from dataclasses import dataclass\nfrom fedsash.engines import Engine\n\n@dataclass(frozen=True)\n"
    (tmp_path / "own_engine.py").write_text(code + "class Mine(Engine):\n    def open(self, work, rounds=None): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = parse({"base": BASE | {"engine": {"name": "own_engine:Mine"}}, "axes": {"seed": [0]}}, Path(), own_code=True)
    with pytest.raises(ConfigError, match=r"^engine.name = 'own_engine:Mine': a sweep over a cluster needs an engine"):
        execute(own, tmp_path / "out", progress=False, cluster="local")


def test_runs_that_need_more_cores_than_a_machine_has_are_refused(tmp_path: Path) -> None:
    wide = {"engine": BASE["engine"] | {"workers": 3, "threads": 6}}
    with pytest.raises(SettingError, match="cluster = 'local': has no machine with the 18 cores that a run needs"):
        on_cluster(sweep({"seed": [0, 1]}, **wide), tmp_path)
