"""The papers' open numbers on a machine that is lent for minutes, such as one with a GPU.

    python -m benchmarks.on_gpu --data DIR --out PACKED [--before PACKED] [--seconds 480] [TASK ...]

A TASK is `REPRODUCTION: CELL; CELL`, as in `ima-table-1: CIFAR-10 CNN a=0.1 / FedNova`. Without any, the tasks are
those of `fedsash reproduce --todo`, the best evidence for the time first. Four tasks (`--at-once`) are
trained side by side. All stop within the `--seconds`, also in the middle of a run. The rows are printed as they end.

`--out` gets tar files of at most 16 MiB, at most eight of them, 64 MiB in all: the rows, and the folders of runs that
have not ended yet, those with the fewest rounds left first. What does not fit is named, and begins anew next time.
`--before` is such a folder of last time, from which the runs go on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsash.lab.papers import load, reproductions
from fedsash.lab.papers.ledger import Ledger, Row
from fedsash.lab.papers.todo import todo
from fedsash.vector.saved import saved_rounds

MOST_FILES = 8
MOST_BYTES = 16 * 2**20
MOST_IN_ALL = 64 * 2**20
RESERVE = 15.0
"""Seconds for packing."""
STARTING = 4.0
"""Seconds that a process takes before its own clock starts."""
NOT_PACKED = ("models", "pictures", "analyses", "logs")
"""Folders that a run needs for nothing when it goes on."""


@dataclass(frozen=True)
class Task:
    """Cells of a reproduction, by the names of their rows and columns."""

    reproduction: str
    cells: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Task:
        """The task in `REPRODUCTION: CELL; CELL`."""
        name, _, cells = text.partition(":")
        return cls(name.strip(), tuple(cell.strip() for cell in cells.split(";")))

    def __str__(self) -> str:
        return f"{self.reproduction}: {'; '.join(self.cells)}"

    @property
    def folder(self) -> Path:
        """The path of its folder, the same next time."""
        mark = hashlib.sha256(str(self).encode()).hexdigest()[:8]
        return Path(self.reproduction) / mark


def tasks_left(data: Path, ledger: Path) -> list[Task]:
    """The open tasks whose data are here, of known cost first."""
    open_tasks = todo(reproductions().values(), Ledger(ledger), data)
    return [Task(task.reproduction.name, tuple(task.names)) for task in open_tasks if not task.missing]


def train(tasks: Sequence[Task], work: Path, data: Path, end: float, at_once: int, more: Sequence[str]) -> None:
    """Train the tasks, so many side by side, until `end`, a time of `time.monotonic`."""
    waiting = list(tasks)
    running: dict[subprocess.Popen[bytes], Task] = {}
    seen: dict[Path, float] = {}
    try:
        _train(waiting, running, seen, work, data, end, at_once, more)
    finally:
        for process in running:  # something has failed, or this program is told to stop
            process.terminate()
        for process in running:
            process.wait()


def _train(
    waiting: list[Task],
    running: dict[subprocess.Popen[bytes], Task],
    seen: dict[Path, float],
    work: Path,
    data: Path,
    end: float,
    at_once: int,
    more: Sequence[str],
) -> None:
    """Start tasks as places become free, and print what they give, until nothing is left or the time is up."""
    while waiting or running:
        left = end - time.monotonic()
        while waiting and len(running) < at_once and left > 2 * STARTING:
            task = waiting.pop(0)
            out = work / task.folder
            command = [sys.executable, "-m", "fedsash", "reproduce", task.reproduction]
            command += [word for cell in task.cells for word in ("--cell", cell)]
            command += [
                "--data",
                str(data),
                "--out",
                str(out),
                "--no-progress",
                "--stop-after",
                f"{left - STARTING:.0f}s",
                *more,
            ]
            out.parent.mkdir(parents=True, exist_ok=True)
            with (out.parent / f"{out.name}.log").open("ab") as log:
                running[subprocess.Popen(command, stdout=log, stderr=log)] = task
        for process in [process for process in running if process.poll() is not None]:
            task = running.pop(process)
            said = {0: "ended", 142: "goes on next time"}.get(process.returncode, f"failed ({process.returncode})")
            print(f"{task}: {said}", flush=True)
        print_rows(work, seen)
        if waiting and not running and left <= 2 * STARTING:
            return
        time.sleep(0.2)


def print_rows(work: Path, seen: dict[Path, float]) -> None:
    """Print the rows that are new or have changed."""
    for path in sorted(work.glob("*/*/rows/*/*.json")):
        changed = path.stat().st_mtime
        if seen.get(path) == changed:
            continue
        seen[path] = changed
        table = json.loads(path.read_text())
        for row in map(Row.load, table["rows"] if "printed" in table else []):
            name = " / ".join(filter(None, (table["row"], table["column"], table["cell"])))
            print(f"{table['table']}: {name}: {row} (print: {table['printed']})", flush=True)


def pack(work: Path, out: Path) -> None:
    """Pack the rows and the runs that have not ended, within the limits."""
    out.mkdir(parents=True, exist_ok=True)
    packs = [_Pack(out / "part-0.tar.gz")]
    left_out = []
    rows = [path for path in work.glob("*/*/rows") if path.is_dir()]
    for folder in [*rows, *unfinished(work)]:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not _unneeded(path, folder))
        pack = next((pack for pack in packs if pack.size + size <= MOST_BYTES), None)
        whole = sum(each.size for each in packs) + size
        if pack is None and size <= MOST_BYTES and len(packs) < MOST_FILES:
            pack = _Pack(out / f"part-{len(packs)}.tar.gz")
            packs.append(pack)
        if pack is None or whole > MOST_IN_ALL:
            left_out.append(f"{folder.relative_to(work)} ({size / 2**20:.1f} MiB)")
            continue
        pack.add(folder, work)
    for pack in packs:
        pack.close()
    for line in left_out:
        print(f"not packed, it begins anew next time: {line}", flush=True)


class _Pack:
    """A tar file, and the bytes of what was put into it, which compression makes fewer."""

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._tar = tarfile.open(path, "w:gz", compresslevel=1)  # noqa: SIM115 (closed by `close`)

    def add(self, folder: Path, work: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not _unneeded(path, folder):
                self.size += path.stat().st_size
                self._tar.add(path, path.relative_to(work))

    def close(self) -> None:
        self._tar.close()


def _unneeded(path: Path, folder: Path) -> bool:
    return path.relative_to(folder).parts[0] in NOT_PACKED


def unfinished(work: Path) -> list[Path]:
    """The folders of runs that have begun and not ended, those with the fewest rounds left first."""
    left: dict[Path, int] = {}
    for config in [*work.glob("*/*/runs/*/config.toml"), *work.glob("*/*/shared/*/config.toml")]:
        folder = config.parent
        rounds = saved_rounds(folder / "state")
        summary = folder / "summary.json"
        planned = _planned_rounds(config)
        over = bool(rounds) and max(rounds) >= planned and summary.exists()
        if not over:
            left[folder] = planned - max(rounds, default=0)
        elif folder.parent.name == "shared":  # runs that continue it need its last state
            left[folder] = 0
    return sorted(left, key=left.__getitem__)


def _planned_rounds(config: Path) -> int:
    return int(tomllib.loads(config.read_text())["rounds"])


def unpack(before: Path, work: Path) -> None:
    """Unpack what was packed last time."""
    for path in sorted(before.glob("part-*.tar.gz")):
        with tarfile.open(path) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(work, filter="data")
            else:  # Python 3.11.0 to 3.11.3; what is packed here are plain files below the folder
                tar.extractall(work, [member for member in tar if member.isfile() and ".." not in member.name])


def main() -> None:
    """Do what the module's docstring says."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tasks", nargs="*", type=Task.of, metavar="TASK")
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--before", type=Path)
    options.add_argument("--ledger", type=Path, default=Path("results"))
    options.add_argument("--seconds", type=float, default=480.0)
    options.add_argument("--at-once", type=int, default=4)
    options.add_argument("--scale", default="full")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is there is packed
    end = time.monotonic() + given.seconds - RESERVE * min(1.0, given.seconds / 60)
    work = Path(tempfile.mkdtemp(prefix="fedsash-"))
    try:
        if given.before is not None:
            unpack(given.before, work)
        tasks = given.tasks or tasks_left(given.data, given.ledger)
        for task in tasks:
            load(task.reproduction)
        more = ["--scale", given.scale, *(word for setting in given.set for word in ("--set", setting))]
        try:
            train(tasks, work, given.data, end, given.at_once, more)
        finally:
            pack(work, given.out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
