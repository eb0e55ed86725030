"""A sweep as a user meets it: the command, nothing compiled or measured before, wall clock and processor's time.

    python -m benchmarks.sweeps [--rounds 300] [--runs 16] [--turns 3] [--set KEY=VALUE ...] [SRC ...]

Runs of W1 of `benchmarks.peers` (an MLP 64-64-10, 100 clients of about 18 digits, batch 10, 1 epoch, 10 clients a
round) that differ in their seeds, with `--jobs 1`. Each SRC is a folder with the package, such as that of an earlier
commit, and all are measured in turn; without any it is this one. Every sweep begins with a new cache folder.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import tomli_w

HERE = Path(__file__).parents[1] / "src"


def table(runs: int, rounds: int) -> dict[str, object]:
    """The sweep's file."""
    base = {
        "rounds": rounds,
        "data": {"name": "digits"},
        "partition": {"name": "iid", "clients": 100},
        "model": {"name": "mlp", "hidden": [64]},
        "local": {"lr": 0.1, "batch": 10, "epochs": 1},
        "sampling": {"name": "uniform", "count": 10},
    }
    return {"base": base, "axes": {"seed": list(range(runs))}}


def swept(source: Path, content: dict[str, object], settings: Sequence[str]) -> tuple[float, float]:
    """The seconds of one sweep by the clock, and those of the processor in all its processes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.toml"
        file.write_text(tomli_w.dumps(content))
        environ = os.environ | {"FEDSASH_CACHE": f"{folder}/cache", "TMPDIR": folder, "PYTHONPATH": str(source)}
        more = [word for setting in settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "fedsash", "sweep", str(file), "--out", f"{folder}/out", "--jobs", "1", *more]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweeps")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    parser.add_argument("sources", nargs="*", type=Path, default=[HERE], metavar="SRC")
    asked = parser.parse_args(words)
    for turn in range(asked.turns):
        for source in asked.sources:
            clock, processor = swept(source.resolve(), table(asked.runs, asked.rounds), asked.settings)
            print(f"turn {turn + 1}  {source}  {clock:7.1f} s, of the processor {processor:7.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
