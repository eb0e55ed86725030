"""Three thousand rounds: the memory of a run and its workers, and the number of their open files, do not grow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .experiments import write
from .frame import Bench, Case, Finding
from .scenarios import QUIET

SIZES = {"full": 6, "short": 1}
ROUNDS = 3000
FEW = 300
"""Rounds at the short scale."""
LIMIT = 1800.0
"""The seconds that a run may take."""
GROWTH = 8 << 20
"""How many bytes the memory may grow from the second third of the samples to the last."""
RUNS = (
    ("run", "workers.toml", "--set", "method.name=fedavg"),
    ("run", "run.toml", "--set", 'averages.w6={name="window", size=6, storage="disk"}'),
    ("run", "plain.toml", "--set", 'engine={kind="vectorised", threads=1}'),
    ("run", "plain.toml", "--set", "method.name=mime", "--set", "server.momentum=0.9"),
    ("run", "plain.toml", "--set", "method.name=feddyn", "--set", 'engine={kind="sequential", workers=2}'),
    ("network", "network.toml"),
)


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """One long run each."""
    rounds = ROUNDS if size == SIZES["full"] else FEW
    for words in RUNS[:size]:
        yield Case(f"{rounds} rounds of {' '.join(words)}", partial(_case, bench, words, rounds))


def _case(bench: Bench, words: tuple[str, ...], rounds: int, place: Path) -> Iterator[Finding]:
    write(place)
    more = {"rounds": rounds, "evaluation.every": 20, "checkpoint.every": 50, "trajectory.every": 0}
    if words[0] == "network":
        del more["trajectory.every"]
    settings: list[str] = []
    for key, value in more.items():
        settings += ["--set", f"{key}={value}"]
    running = bench.start(place, *words, *settings, "--out", "out", QUIET)
    samples = []
    begin = time.monotonic()
    while not running.ended() and time.monotonic() - begin < LIMIT:
        samples.append(_used(running.process.pid))
        time.sleep(0.2)
    yield from running.wait(1.0).findings(0)
    third = len(samples) // 3
    if third:
        yield from _growth(samples[third : 2 * third], samples[2 * third : 3 * third])


def _growth(middle: Sequence[Used], last: Sequence[Used]) -> Iterator[Finding]:
    """What has grown from the second third of the samples to the last.

    Medians are compared, since a state that is being saved is open, and in memory, for a moment.
    """
    growth = median(used.memory for used in last) - median(used.memory for used in middle)
    if growth > GROWTH:
        yield Finding("unclear", f"the memory grew by {growth / 2**20:.0f} MiB in the last third")
    before = median(used.files for used in middle)
    after = median(used.files for used in last)
    if after > before:
        yield Finding("unclear", f"the open files grew from {before:.0f} to {after:.0f}")


class Used(NamedTuple):
    """What processes use: bytes of memory, and open files."""

    memory: int
    files: int


def _used(pid: int) -> Used:
    """What a process and its children use; nothing if it is gone."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return Used(0, 0)
    for child in children:
        of_child = _used(int(child))
        memory += of_child.memory
        files += of_child.files
    return Used(memory, files)
