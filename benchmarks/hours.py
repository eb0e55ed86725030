"""What the papers' runs take on this machine, without training them.

    python -m benchmarks.hours FOLDER

FOLDER holds a folder for each data set. For each part of a reproduction this counts the rounds to train, shared ones
once, and times a round of its first method: two clients on two workers in bfloat16, one round to warm up and one that
counts; a whole round has the expected number of samples. Methods with two gradients a step, such as FedSAM, take twice
as long, and evaluations, which are left out, up to a tenth more.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import fedsash as fs
from fedsash.lab.config import Experiment
from fedsash.lab.papers import load
from fedsash.lab.papers.reproduce import with_data
from fedsash.lab.sweeps import plan
from fedsash.methods import sampling

WORKERS = 2


@dataclass(frozen=True)
class Part:
    """A part of a reproduction: labels on its axes, and settings that differ from the paper's."""

    name: str
    only: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


PARTS = [
    Part("ima-table-1", ("row=FMNIST #C=2",)),
    Part("ima-table-1", ("row=FMNIST a=0.1",)),
    Part("ima-table-1", ("row=CIFAR-10 CNN #C=2",)),
    Part("ima-table-1", ("row=CIFAR-10 CNN a=0.1",)),
    Part("ima-table-1", ("row=CIFAR-10 ResNet #C=2",)),
    Part("wima-table-2", ("data=CIFAR-10 a=0", "seed=0", "method=FedAvg", "method=SCAFFOLD"), ("rounds=2000",)),
    Part("wima-table-2", ("data=CIFAR-10 a=0", "seed=0")),
    Part("wima-figure-3", (), ('model={name="lenet5"}',)),
    Part("ima-table-3", ("method=FedAvg",)),
    Part("ima-table-2", ("method=FedAvg",)),
    Part("ima-figure-1", ("run=CIFAR-10 CNN #C=2",)),
    Part("ima-figure-6"),
]


def seconds(experiment: Experiment, rates: dict[str, float]) -> float:
    """How long a round takes. `rates` remembers samples a second."""
    engine = fs.LocalEngine("sequential", WORKERS, 1, False, "channels_last", 1, precision="bfloat16")
    few = replace(experiment, sampling=sampling.Uniform(WORKERS), engine=engine, device="cpu")
    step = repr((experiment.data, experiment.model, experiment.local.batch))
    with few.federation() as f:
        if step not in rates:
            state, _ = f.round(f.start())
            began = time.monotonic()
            _, outcome = f.round(state)
            rates[step] = outcome.samples / (time.monotonic() - began)
        clients = experiment.sampling.expected(len(f.sizes))
        return float(f.sizes.mean()) * clients * experiment.local.epochs / rates[step]


def hours(part: Part, folder: Path, rates: dict[str, float]) -> tuple[int, float]:
    """Rounds to train, and the hours that they take."""
    rounds: dict[str, int] = defaultdict(int)
    example: dict[str, Experiment] = {}
    for segment in plan(with_data(load(part.name).plan("full", part.only, part.settings), folder)[0].runs).segments:
        e = segment.experiment
        kind = repr((e.data, e.partition, e.model, e.sampling, e.local.batch, e.local.epochs))
        rounds[kind] += segment.rounds
        example.setdefault(kind, e)
    return sum(rounds.values()), sum(n * seconds(example[kind], rates) for kind, n in rounds.items()) / 3600


def main(folder: Path) -> None:
    rates: dict[str, float] = {}
    print("| reproduction | part | rounds | seconds a round | hours |\n|---|---|---|---|---|")
    for part in PARTS:
        rounds, took = hours(part, folder, rates)
        words = ", ".join([*part.only, *part.settings]) or "all"
        print(f"| `{part.name}` | {words} | {rounds:,} | {3600 * took / rounds:.1f} | {took:.1f} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
