"""What needs no POSIX: importing, and running in one process, without what Windows lacks.

Windows itself has not been tried. These programs run where the modules and functions that only POSIX has are gone.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

LIBRARIES = "import matplotlib.pyplot, rich.progress, sklearn.datasets, torch._dynamo"
"""These may use what this system has."""
WITHOUT = """
import os, select, signal, sys
for module in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[module] = None
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


def fresh(program: str, folder: Path) -> tuple[int, str]:
    """The exit status of a program in an interpreter of its own, and what it said of errors."""
    command = [sys.executable, "-c", f"{LIBRARIES}\n{WITHOUT}\n{program}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stderr


def as_in_a_new_process() -> None:
    """Undo what pytest and the tests before have made of the logs."""
    logging.disable(logging.NOTSET)
    for log, level in ((logging.root, logging.WARNING), (logging.getLogger("fedsash"), logging.NOTSET)):
        log.handlers.clear()
        log.setLevel(level)
        log.disabled = False
        log.propagate = True


def forked(program: str, folder: Path) -> tuple[int, str]:
    """The same in a copy of this process, which has imported PyTorch and imports fedsash anew; it draws no pictures."""
    import sklearn.datasets  # noqa: F401, which the child then need not do
    import torch  # noqa: F401

    said = folder / "said.txt"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(folder)
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout = os.fdopen(1, "w")
            sys.stderr = os.fdopen(2, "w")
            as_in_a_new_process()
            for name in [name for name in sys.modules if name.partition(".")[0] == "fedsash"]:
                del sys.modules[name]
            exec(f"{WITHOUT}\nfrom fedsash.runs.pictures import paper\n{UNDRAWN}\n{program}", {})
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, said.read_text()


UNDRAWN = 'paper.drawn = lambda picture, form: b""'


EXPERIMENT = """
rounds = {rounds}
engine = {{ kind = "{kind}", workers = 1 }}
partition = {{ name = "iid", clients = 4 }}
sampling = {{ count = 2 }}
averages.w = {{ name = "window", size = 2{more} }}
checkpoint.every = 1
"""


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (forked, "sequential"),
        pytest.param(fresh, "sequential", marks=pytest.mark.full),
        pytest.param(fresh, "vectorised", marks=pytest.mark.full),
    ],
)
def test_a_run_trains_resumes_and_is_reported_and_models_on_the_disk_are_refused(
    run: Callable[[str, Path], tuple[int, str]], kind: str, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(EXPERIMENT.format(kind=kind, rounds=2, more=""))
    (tmp_path / "disk.toml").write_text(EXPERIMENT.format(kind=kind, rounds=2, more=', storage = "disk"'))
    status, said = run(
        """
assert main(["run", "own.toml"]) == 0
assert main(["resume", "runs/own", "--rounds", "3"]) == 0
assert main(["compare", "runs/own"]) == 0
assert main(["run", "disk.toml"]) == 2
""",
        tmp_path,
    )
    assert status == 0, said
    assert len((tmp_path / "runs/own/metrics.jsonl").read_text().splitlines()) >= 3
    line = "a window on the disk needs files without names, which this system lacks: keep models in memory"
    assert said.splitlines()[-1] == f"fedsash: {line}"
