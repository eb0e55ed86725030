"""What a machine must have to go on with what another one has begun."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("fedsash", "torch", "numpy")


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
