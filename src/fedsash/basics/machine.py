"""What a machine has: its cores, and the versions with which it can go on with what another one has begun."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("fedsash", "torch", "numpy")


def cores() -> list[int]:
    """The numbers of the cores that this process may use, ascending."""
    known = hasattr(os, "sched_getaffinity")
    return sorted(os.sched_getaffinity(0)) if known else list(range(os.cpu_count() or 1))


def own_version() -> str:
    """The version of this library; words where it is used from a source tree that is not installed."""
    try:
        return version("fedsash")
    except PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that determine a run's numbers, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def unlike(marker: str, folder: str, elsewhere: Mapping[str, str]) -> str:
    """Why this machine can't go on, or nothing: the file `marker`, the `folder` or the versions there are not here."""
    if not Path(marker).exists():
        return f"does not see {Path(marker).parent}: it must be on a file system that all machines share"
    if not Path(folder).is_dir():
        return f"does not see {folder}, the folder of this command: start it in one that all machines share"
    own = versions()
    other = [f"{name} {own[name]}, and this one {there}" for name, there in elsewhere.items() if own[name] != there]
    return f"has {'; '.join(other)}: install the same versions on all machines" if other else ""
