"""What POSIX systems have and Windows lacks, and what is done there without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

UNKNOWN_MEMORY = 4 << 30
"""The bytes that count as available where the system does not tell them: few enough for any machine."""


after_fork: list[Callable[[], object]] = []
"""What a process that is forked from this one does first: it forgets what is the first one's alone."""


def after_fork_in_child(call: Callable[[], object]) -> None:
    """Call this in each process that is forked from this one; without `fork` there is none."""
    after_fork.append(call)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def allow_open_files(needed: int, why: str) -> None:
    """Let this process have so many files open. `why` begins the `OSError` that is raised if that is impossible."""
    try:
        import resource
    except ImportError:
        raise OSError(f"{why} files without names, which this system lacks: keep models in memory") from None
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < needed:
        raise OSError(f"{why} {needed} open files, and this process may have {hard_limit} (ulimit -Hn)")
    if soft_limit != resource.RLIM_INFINITY and soft_limit < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard_limit))


def peak_memory() -> int | None:
    """The largest resident memory of this process so far, in bytes; None if the system does not tell it."""
    with suppress(OSError):  # only Linux has this file
        # Unlike the number of `getrusage`, this one can be set back, and has nothing of the process that started this.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                kibibytes = int(line.split()[1])
                return kibibytes * 1024
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak_memory() -> None:
    """Let `peak_memory` count from now on, where the system can do that (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def half_of_memory() -> int:
    """Half of the machine's memory in bytes, or `UNKNOWN_MEMORY` if the system does not tell it."""
    if not hasattr(os, "sysconf"):
        return UNKNOWN_MEMORY
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
