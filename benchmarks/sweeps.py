"""A sweep as one more axis: the rounds of several runs, jointly and one after another, as in docs/design/speed.md.

    python -m benchmarks.sweeps [WORK ...]          # WORK: mlp, images, convolution

One process, one thread, no evaluation. Each way makes a round of all runs in turn; a number is the fastest of some, in
rounds of one run in a second of the processor's time, summed over the runs. Runs differ in seed and rate. `mlp`: 16
runs of W1 of `benchmarks.peers` (an MLP 64-64-10, 100 clients of 18 samples, batch 10, 1 epoch, 10 a round). `images`:
16 runs of an MLP 784-32-10, clients of 500 samples, batch 50; all their models together are too large for the caches.
`convolution`: 4 runs of LeNet5 on images of 28 x 28, clients of 20 samples.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

import fedsash as fs
from fedsash import models
from fedsash.executors import LocalEngine
from fedsash.executors.joint import Shape
from fedsash.joint_rounds import JointRounds, trainer_of
from fedsash.lab.sweeps.trial import Trial, most_clients
from fedsash.state import Made

STACKED = LocalEngine("vectorised", 1, 10, False, "contiguous", 1)
ONE_BY_ONE = LocalEngine("sequential", 1, 1, False, "contiguous", 1)
COMPILED = replace(STACKED, compile=True)
SECONDS = 3.0
"""How long a way is measured, in the processor's time."""


@dataclass(frozen=True)
class Work:
    """Runs of one model, which differ in seed and rate."""

    runs: int
    model: str
    shape: tuple[int, ...]
    size: int
    batch: int
    compiles: bool
    options: Mapping[str, Any] = field(default_factory=dict)

    def federations(self, engine: LocalEngine) -> list[fs.Federation]:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(100 * self.size, *self.shape)).astype(np.float32)
        data = fs.FederatedData.from_arrays(
            x, rng.integers(0, 10, len(x)), np.split(np.arange(len(x)), 100), classes=10
        )
        found = []
        for run in range(self.runs):
            model = models.build(self.model, dict(self.options), shape=self.shape, classes=10, seed=run)
            local = fs.LocalTraining(lr=0.1 / (1 + run), batch=self.batch)
            found.append(fs.Federation(model, data, local=local, engine=engine, device="cpu", seed=run))
            found[-1].prepare()
        return found


WORKS = {
    "mlp": Work(16, "mlp", (64,), 18, 10, compiles=True),
    "images": Work(16, "mlp", (1, 28, 28), 500, 50, compiles=True, options={"hidden": [32]}),
    "convolution": Work(4, "lenet5", (1, 28, 28), 20, 10, compiles=False),
}


def alone(federations: list[fs.Federation]) -> Callable[[], object]:
    """A round of each run, one after another."""
    states = [federation.start() for federation in federations]

    def turn() -> None:
        for run, federation in enumerate(federations):
            states[run], _ = federation.round(states[run])

    return turn


def jointly(federations: list[fs.Federation], compiled: bool) -> Callable[[], object]:
    """A round of each run, jointly."""
    trainers = [trainer_of(federation) for federation in federations]
    shape = Shape.of(trainers, max(map(most_clients, federations)))
    joint = JointRounds(federations, shape.compiled(trainers) if compiled else shape, range(len(trainers)))
    states = {run: federation.start() for run, federation in enumerate(federations)}

    def turn() -> None:
        for run, made in joint.made(dict(states)):
            assert isinstance(made, Made), made
            states[run] = made.state

    return turn


def measured(work: Work) -> Iterator[tuple[str, float]]:
    """Each way, and its rounds in a second."""
    ways = {
        "alone, one by one": alone(work.federations(ONE_BY_ONE)),
        "alone, stacked": alone(work.federations(STACKED)),
        "joint": jointly(work.federations(STACKED), compiled=False),
    }
    if work.compiles:
        ways["alone, compiled"] = alone(work.federations(COMPILED))
        ways["joint, compiled"] = jointly(work.federations(COMPILED), compiled=True)
    fastest, spent = dict.fromkeys(ways, float("inf")), 0.0
    for call in ways.values():  # the first one compiles
        call()
    while spent < SECONDS * len(ways):
        for name, call in ways.items():
            began = time.process_time()
            call()
            fastest[name] = min(fastest[name], time.process_time() - began)
            spent += time.process_time() - began
    yield from ((name, work.runs / seconds) for name, seconds in fastest.items())


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or WORKS:
        work = WORKS[name]
        print(f"{name}: {work.runs} runs")
        for way, rounds in measured(work):
            print(f"  {way:26} {rounds:8.0f} rounds/s")
        federations = work.federations(STACKED)
        trial = Trial(federations, [federation.start() for federation in federations])
        print(f"  {trial.choose(10_000, work.compiles).why}")


if __name__ == "__main__":
    main(sys.argv[1:])
