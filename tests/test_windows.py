"""What needs no POSIX: importing, and running in one process, without what Windows lacks.

Windows itself has not been tried. These programs run where the modules and functions that only POSIX has are gone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
for module in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[module] = None
import os, select, signal
import matplotlib.pyplot, rich.progress, sklearn.datasets, torch._dynamo  # these may use what this system has
for owner, names in {
    os: "O_CLOEXEC O_NOFOLLOW O_TMPFILE fchmod getuid posix_fadvise posix_fallocate pread pwrite register_at_fork"
        " sched_getaffinity sched_setaffinity sysconf",
    select: "poll",
    signal: "pthread_sigmask",
}.items():
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
from fedsash.lab.cli import main
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + program], cwd=folder, capture_output=True, text=True)


EXPERIMENT = """
rounds = {rounds}
engine = {{ kind = "{kind}" }}
partition = {{ name = "iid", clients = 4 }}
sampling = {{ count = 2 }}
averages.w = {{ name = "window", size = 2{more} }}
checkpoint.every = 1
"""


@pytest.mark.parametrize("kind", [pytest.param("sequential", marks=pytest.mark.slow), "vectorised"])
def test_a_run_trains_resumes_and_is_reported_and_models_on_the_disk_are_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(EXPERIMENT.format(kind=kind, rounds=2, more=""))
    (tmp_path / "disk.toml").write_text(EXPERIMENT.format(kind=kind, rounds=2, more=', storage = "disk"'))
    done = run(
        """
assert main(["run", "own.toml"]) == 0
assert main(["resume", "runs/own", "--rounds", "3"]) == 0
assert main(["compare", "runs/own"]) == 0
assert main(["run", "disk.toml"]) == 2
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "runs/own can't be locked here: let only one process work in it" in done.stderr
    assert len((tmp_path / "runs/own/metrics.jsonl").read_text().splitlines()) >= 3
    line = "a window on the disk needs files without names, which this system lacks: keep models in memory"
    assert done.stderr.splitlines()[-1] == f"fedsash: {line}"
