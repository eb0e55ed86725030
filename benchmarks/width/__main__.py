"""A width that sets itself: rules that see no test set choose the width of a window, on recorded runs.

    python -m benchmarks.width record examples/findings/width.toml --out runs/width --only data=digits
    python -m benchmarks.width judge runs/width

docs/studies/width.md has the plan and what came out. `record` goes on where it stopped; two of them may share a folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from fedsash.lab.sweeps.axes import load

from .judge import TUNED_ON, judge
from .record import record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    recording = commands.add_parser("record", help="train the runs of a sweep, and judge all their windows")
    recording.add_argument("sweep", type=Path)
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--only", action="append", default=[], metavar="AXIS=LABEL")
    judging = commands.add_parser("judge", help="print the regret of each rule, as a table in Markdown")
    judging.add_argument("recordings", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.command == "record":
        record_all(arguments.sweep, arguments.only, arguments.out)
        return
    for line in judge(arguments.recordings):
        print(line)


def record_all(sweep_file: Path, only: list[str], folder: Path) -> None:
    """Record each run of a sweep that has no file yet."""
    sweep = load(sweep_file, only)
    for number, run in enumerate(sweep.runs, 1):
        path = folder / (run.name.replace("/", ",") + ".npz")
        if path.exists():
            continue
        recording = record(run.experiment, run.labels, every_size=run.labels["data"] in TUNED_ON)
        recording.write(path)
        last = recording.accuracies[-1].mean(axis=1)
        print(
            f"{number} of {len(sweep.runs)}: {run.name}: model {100 * last[0]:.1f}, best window"
            f" {recording.sizes[-1][last.argmax()]} with {100 * last.max():.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
