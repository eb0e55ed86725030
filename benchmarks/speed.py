"""Speed of three workloads, as ratios to a plain PyTorch loop measured in the same run.

    python -m benchmarks.speed [W1 W2 W3]

W1: 100 clients x 18 samples of 64 features, MLP 64-64-10, batch 10, 1 epoch. W2: 100 x 100 images 1x28x28, conv5x5-32,
pool, conv5x5-64, pool, fc512, fc62 (padded convolutions, 1,690,046 parameters), batch 10, 1 epoch. W3: 100 x 600
images, FMNIST CNN, batch 50, 5 epochs, momentum 0.9. 10 clients a round; synthetic data; no evaluation. Each way to
train is timed several times in turn with the others, and its fastest time counts. "2 loops" are two plain loops with a
thread each, side by side: what two cores give without sharing anything.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from torch import nn

import fedsash as fs
from fedsash import models
from fedsash.averages import Observer, Observers

REPEATS = 3
"""How often each way is timed."""


@dataclass(frozen=True)
class Workload:
    """A federation of equal clients on random data."""

    name: str
    samples: int
    shape: tuple[int, ...]
    classes: int
    model: Callable[[], nn.Module]
    batch: int
    epochs: int
    lr: float
    momentum: float
    rounds: int
    plain_rounds: int

    @property
    def samples_per_round(self) -> int:
        """Samples trained on in a round."""
        return 10 * self.samples * self.epochs

    def data(self) -> fs.FederatedData:
        rng = np.random.default_rng(0)
        n = 100 * self.samples
        y = rng.integers(0, self.classes, n)
        if len(self.shape) == 1:
            x: np.ndarray = rng.normal(size=(n, *self.shape)).astype(np.float32)
        else:
            x = rng.integers(0, 256, (n, *self.shape[1:], self.shape[0]), dtype=np.uint8)
        return fs.FederatedData.from_arrays(x, y, np.split(np.arange(n), 100), classes=self.classes)


def femnist_cnn() -> nn.Module:
    """conv5x5-32, pool, conv5x5-64, pool, fc512, fc62."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 62)),
    )


WORKLOADS = {
    w.name: w
    for w in (
        Workload("W1", 18, (64,), 10, lambda: models.MLP((64,), 10, (64,)), 10, 1, 0.1, 0.0, 1000, 100),
        Workload("W2", 100, (1, 28, 28), 62, femnist_cnn, 10, 1, 0.01, 0.0, 4, 4),
        Workload("W3", 600, (1, 28, 28), 10, lambda: models.fmnist_cnn((1, 28, 28), 10), 50, 5, 0.01, 0.9, 2, 1),
    )
}


def plain_loop(work: Workload, threads: int) -> Callable[[], float]:
    """Rounds a second of the plain loop, in a process of its own, so that nothing that fedsash sets up helps it."""

    def measure() -> float:
        command = [sys.executable, "-m", "benchmarks.plain", work.name, str(threads)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return measure


def two_loops(work: Workload) -> Callable[[], float]:
    """Rounds a second of two plain loops at the same time, added up."""
    one = plain_loop(work, 1)

    def measure() -> float:
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(lambda _: one(), range(2)))

    return measure


def library(work: Workload) -> Callable[[], float]:
    """Rounds a second of fedsash, with the engine that it chooses for a long run."""
    client = fs.LocalTraining(
        lr=work.lr, batch=work.batch, epochs=work.epochs, optimiser=fs.SGD(momentum=work.momentum)
    )
    federation = fs.Federation(work.model(), work.data(), local=client, device="cpu")
    for note in federation.prepare(rounds=10**6):
        print(f"{work.name} {note}", flush=True)
    state = federation.start()

    def measure() -> float:
        nonlocal state
        began = time.perf_counter()
        for _ in range(work.rounds):
            state, _ = federation.round(state)
        return work.rounds / (time.perf_counter() - began)

    return measure


def observing(work: Workload, sizes: tuple[int, ...] = (5, 20, 100)) -> float:
    """Seconds a round that windows of these sizes cost together, once they are full."""
    w = fs.Layout(work.model()).flatten(work.model())
    observers = Observers({f"window{size}": Observer(fs.Window(size), [(0, len(w))]) for size in sizes})
    seen = SimpleNamespace(**dict(zip(("averages", "past"), observers.init(w), strict=True)))
    times = []
    for round in range(1, max(sizes) + 30):
        began = time.perf_counter()
        observers.observe(seen, w, round)
        times.append(time.perf_counter() - began)
    return float(np.median(times[-20:]))


def main(names: list[str]) -> None:
    for name in names or list(WORKLOADS):
        work = WORKLOADS[name]
        ways = {
            "plain loop, 1 thread": plain_loop(work, 1),
            "plain loop, 2 threads": plain_loop(work, 2),
            "2 loops, side by side": two_loops(work),
            "fedsash": library(work),
        }
        best = dict.fromkeys(ways, 0.0)
        for _ in range(REPEATS):
            for way, measure in ways.items():
                best[way] = max(best[way], measure())
        print(f"{name:26} rounds/s  samples/s  ratio")
        for way, speed in best.items():
            ratio = speed / best["plain loop, 1 thread"]
            print(f"    {way:22} {speed:8.2f} {speed * work.samples_per_round:10.0f} {ratio:6.2f}")
        print(f"    observing windows of 5, 20 and 100: {observing(work) * best['fedsash']:.2%} of a round", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
