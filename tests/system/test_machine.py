"""How many cores a process may use: by its affinity and by the quota of its control group."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from fedsash.system.machine import core_count, core_quota, cores, cores_of_task


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        pytest.param("0::/\n", {}, math.inf, id="no limit"),
        pytest.param("0::/\n", {"cpu.max": "100000 100000\n"}, 1.0, id="version 2"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, math.inf, id="version 2 without a limit"),
        pytest.param("0::/a/b\n", {"a/cpu.max": "250000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2.5, id="parent"),
        pytest.param("0::/docker/1\n", {"cpu.max": "50000 100000\n"}, 0.5, id="the path of the machine in a container"),
        pytest.param(
            "4:cpu,cpuacct:/a\n1:name=systemd:/\n0::/\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"},
            3.0,
            id="version 1",
        ),
        pytest.param(
            "4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf, id="-1"
        ),
        pytest.param("4:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "1\n"}, math.inf, id="another controller"),
        pytest.param("0::/\n", {"cpu.max": "\n"}, math.inf, id="an empty file"),
    ],
)
def test_the_quota_of_a_control_group(membership: str, files: dict[str, str], quota: float, tmp_path: Path) -> None:
    groups = written(tmp_path / "cgroup", files)
    own = written(tmp_path, {"membership": membership}) / "membership"
    assert core_quota(own, groups) == quota


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert core_quota(tmp_path / "membership", tmp_path) == math.inf


@pytest.mark.parametrize(("quota", "count"), [(math.inf, 64), (100.0, 64), (2.5, 3), (1.0, 1), (0.2, 1)])
def test_a_container_with_a_part_of_the_cores_counts_that_part(
    quota: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsash.system.machine.cores", lambda: list(range(64)))
    monkeypatch.setattr("fedsash.system.machine.core_quota", lambda: quota)
    assert core_count() == count


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_only_the_cores_of_the_affinity_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5})
    assert cores() == [5] and core_count() == 1


@pytest.mark.parametrize(("text", "count"), [("4", 4), ("", math.inf), ("0", math.inf), ("4(x2)", math.inf)])
def test_a_task_of_slurm_has_the_cores_that_slurm_says(
    text: str, count: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", text)
    assert cores_of_task() == count and core_count() <= count
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert core_count() == 1
