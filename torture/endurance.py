"""Three thousand rounds: the memory of a run and its workers, and the number of their open files, do not grow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from .experiments import write
from .frame import Bench, Case, Finding
from .scenarios import QUIET

SIZES = {"full": 6, "short": 1}
ROUNDS, FEW, LIMIT = 3000, 300, 1800.0
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
    settings = [word for key, value in more.items() for word in ("--set", f"{key}={value}")]
    running = bench.start(place, *words, *settings, "--out", "out", QUIET)
    samples, began = [], time.monotonic()
    while not running.ended() and time.monotonic() - began < LIMIT:
        samples.append(_used(running.process.pid))
        time.sleep(0.2)
    yield from running.wait(1.0).findings(0)
    third = len(samples) // 3
    (_, middle, last) = (samples[i * third : (i + 1) * third] for i in range(3))
    if third and (growth := median(m for m, _ in last) - median(m for m, _ in middle)) > GROWTH:
        yield Finding("unclear", f"the memory grew by {growth / 2**20:.0f} MiB in the last third")
    before, after = (median(files for _, files in part) for part in (middle, last)) if third else (0, 0)
    if after > before:  # medians, since a state that is being saved is open for a moment
        yield Finding("unclear", f"the open files grew from {before:.0f} to {after:.0f}")


def _used(pid: int) -> tuple[int, int]:
    """The bytes of memory and the open files of a process and its children; nothing if it is gone."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0, 0
    used = [(own, files), *(_used(int(child)) for child in children)]
    return sum(memory for memory, _ in used), sum(files for _, files in used)
