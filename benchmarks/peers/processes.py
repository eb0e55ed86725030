"""Environments of the peers, and one measurement: a process, its line of JSON, and the memory of all its processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 600.0
"""Seconds after which a measurement is given up."""


class Failed(Exception):
    """A peer that can't be installed or measured: the reason, in one line."""


@dataclass(frozen=True)
class Peer:
    """A way to train: a module of this folder, its environment (none: this Python), and the threads of PyTorch."""

    module: str
    environment: str | None = None
    threads: int | None = None
    launch: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    copies: int = 1
    """so many runs side by side count as one, whose speeds add up"""

    def python(self, envs: Path) -> str:
        """The environment's Python, which is installed first if need be."""
        if self.environment is None:
            return sys.executable
        folder = envs / self.environment
        python = folder / "bin" / "python"
        ready = folder / ".ready"
        if not ready.exists():
            wanted = HERE / "environments" / f"{self.environment}.txt"
            _quietly([sys.executable, "-m", "venv", str(folder)])
            _quietly([str(python), "-m", "pip", "install", "--quiet", *self.pip, "--requirement", str(wanted)])
            ready.touch()
        return str(python)

    def measure(self, envs: Path, *given: str) -> dict[str, Any]:
        """One run. Raises `Failed`."""
        if self.copies == 1:
            return self._run(envs, *given)
        name, folder, saved, *others = given
        models = [saved, *(f"{saved}.{copy}.npz" for copy in range(1, self.copies))]
        with ThreadPoolExecutor(self.copies) as pool:
            runs = list(pool.map(lambda model: self._run(envs, name, folder, model, *others), models))
        for model in models[1:]:
            Path(model).unlink()
        sums = {name: sum(run[name] for run in runs) for name in ("rounds/s", "samples/s", "peak MB")}
        return runs[0] | sums

    def _run(self, envs: Path, *given: str) -> dict[str, Any]:
        command = [self.python(envs), *self.launch, "-m", "benchmarks.peers.run", self.module, *given]
        threads = {} if self.threads is None else {"OMP_NUM_THREADS": str(self.threads)}
        environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"} | threads
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, start_new_session=True
            )
            with _watched(process) as memory:
                found = _line(process)
            if found is None:
                errors.seek(0)
                raise Failed(_reason(errors))
        return found | {"peak MB": round(max(memory, default=0) / 1e6)}


def _quietly(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"not installed: {_last(done.stderr)}")


def _line(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    """The line of JSON, as soon as it is there."""
    assert process.stdout is not None
    late = threading.Timer(LIMIT, process.kill)
    late.start()
    try:
        for line in process.stdout:
            if line.startswith('{"rounds/s"'):
                found: dict[str, Any] = json.loads(line)
                return found
        return None
    finally:
        late.cancel()


@contextlib.contextmanager
def _watched(process: subprocess.Popen[str]) -> Iterator[list[int]]:
    """The memory of the process and its descendants, once a second; in the end none of them is left."""
    memory: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            memory.append(sum(map(_own_memory, _family(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield memory
    finally:
        over.set()
        watcher.join()
        family = _family(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        time.sleep(1)  # what was killed gives its memory back


def _family(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def _own_memory(pid: int) -> int:
    """Bytes of a process that are in no file, with its share of what it has in common with others."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return 0


def _reason(errors: IO[str]) -> str:
    return _last(errors.read()) or f"gave no result within {LIMIT:.0f} s"


def _last(text: str) -> str:
    """The last line that names an error, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "ERROR" in line]
    return (named or lines or [""])[-1][:200]
