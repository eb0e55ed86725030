"""A sweep of short runs in processes of this machine, and over a Ray cluster on it.

    python -m benchmarks.cluster_sweeps --runs 8 --jobs 2

The runs differ in their seed, and are trained one at a time by each process. `first` is the time until the first round
has ended: processes start, import PyTorch and load the data, and Ray starts before them. The memory is what a process,
and on a cluster the actor that holds it, has for itself, in the middle of the sweep. Run it alone on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedsash.engines.processes import own_memory

SWEEP = """
base.rounds = {rounds}
base.partition = {{ name = "dirichlet", clients = 10, alpha = 0.1 }}
base.model = {{ name = "mlp", hidden = [64] }}
base.local = {{ lr = 0.1, batch = 20 }}
base.sampling.count = 3
base.engine = {{ kind = "sequential", workers = 1, compile = false, memory_format = "contiguous" }}
axes.seed = {seeds}
"""


def measured(file: Path, out: Path, *more: str) -> str:
    """The seconds until the first round and the end, and the most memory of a process and of its actor."""
    began = time.perf_counter()
    first = 0.0
    own = 0
    actors = 0
    program = [sys.executable, "-m", "fedsash", "sweep", str(file), "--out", str(out), "--no-progress", *more]
    sweep = subprocess.Popen(program, stdout=subprocess.DEVNULL)
    while sweep.poll() is None:
        if not first and any(rows.stat().st_size for rows in out.glob("runs/*/metrics.jsonl")):
            first = time.perf_counter() - began
        for job in jobs(out):
            own = max(own, own_memory(job))
            actors = max(actors, own_memory(parent_of(job)) if more[2:] else 0)
        time.sleep(0.2)
    assert sweep.returncode == 0
    took = time.perf_counter() - began
    return f"{first:8.1f} s{took:8.1f} s{own / 2**20:10.0f} MiB{actors / 2**20:8.0f} MiB"


def jobs(out: Path) -> list[int]:
    """The processes that have the sweep's logs open."""
    links = [link for link in Path("/proc").glob("[0-9]*/fd/2") if os.path.realpath(link).startswith(str(out))]
    return [int(link.parts[2]) for link in links]


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:  # it has just ended
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    print(f"{'where':14}{'first':>10}{'whole':>10}{'process':>14}{'actor':>12}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.toml")
        file.write_text(SWEEP.format(rounds=given.rounds, seeds=[*range(given.runs)]))
        for where, more in {"processes": (), "Ray cluster": ("--cluster", "local")}.items():
            row = measured(file, Path(folder, where), "--jobs", str(given.jobs), *more)
            print(f"{where:14}{row}", flush=True)


if __name__ == "__main__":
    main()
