"""What a machine has: its cores, and the versions with which it can go on with what another one has begun."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("fedsash", "torch", "numpy")


def cores() -> list[int]:
    """The numbers of the cores that this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))  # macOS and Windows do not tell which ones


def core_count() -> int:
    """How many processes that compute can run at a time here, at least 1.

    A container may see all cores of its machine and get the time of only a few of them, and so may a task of SLURM,
    which says so in `SLURM_CPUS_PER_TASK`. Part of a core counts as one.
    """
    available = min(len(cores()), core_quota(), cores_of_task())
    return max(math.ceil(available), 1)


def cores_of_task() -> float:
    """How many cores SLURM gives to each task, infinity outside of it and where nobody has asked for a number."""
    text = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if not text.isdecimal() or int(text) == 0:
        return math.inf
    return int(text)


def core_quota(membership: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """How many cores' time Linux's control groups give to this process, infinity if they set no limit.

    The file `membership` names a group of this process in each hierarchy; the limits of its parents count, too. In a
    container the name may be that of the machine while `groups` begins at the container: what is not there is no limit.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    least = math.inf
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2, alone or beside version 1
            roots = [groups, groups / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [groups / "cpu", groups / controllers]
        else:
            continue
        group = Path(path.lstrip("/"))
        for root in roots:
            for folder in (group, *group.parents):
                least = min(least, _quota_of(root / folder))
    return least


def _quota_of(group: Path) -> float:
    """How many cores' time one group gets: so many microseconds in each period of so many."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        cores = float(quota) / float(period)
    except (OSError, ValueError):  # no such file, or "max"
        return math.inf
    if cores <= 0:  # version 1 writes -1 for no limit
        return math.inf
    return cores


@cache
def own_version() -> str:
    """The version of this library; words where it is used from a source tree that is not installed."""
    try:
        return version("fedsash")
    except PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that determine a run's numbers, as far as they are installed."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "none"
    return installed


def unlike(marker: str, folder: str, elsewhere: Mapping[str, str]) -> str:
    """Why this machine can't go on with what another one has begun; empty if it can.

    It must see the file `marker` and the `folder`, and have the versions that are installed `elsewhere`.
    """
    if not Path(marker).exists():
        return f"does not see {Path(marker).parent}: it must be on a file system that all machines share"
    if not Path(folder).is_dir():
        return f"does not see {folder}, the folder of this command: start it in one that all machines share"
    installed = versions()
    differences = []
    for name, version_there in elsewhere.items():
        if installed[name] != version_there:
            differences.append(f"{name} {installed[name]}, and this one {version_there}")
    if not differences:
        return ""
    return f"has {'; '.join(differences)}: install the same versions on all machines"
