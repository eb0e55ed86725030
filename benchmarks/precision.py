"""How much faster local training is in bfloat16, model by model: one client at a time on one thread.

    python -m benchmarks.precision [MODEL ...]

The two precisions train in turn, each in the faster memory format, and the fastest of some rounds counts. What
bfloat16 does to what is learned is a matter of examples/findings/precision.toml.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np

import fedsash as fs
from fedsash import models
from fedsash.engines import LocalEngine
from fedsash.engines.gradients import MemoryFormat, Precision

ROUNDS = 5


@dataclass(frozen=True)
class Row:
    """A model, and the samples of its clients."""

    name: str
    shape: tuple[int, ...]
    classes: int
    samples: int
    batch: int
    text: bool = False

    def federation(self, precision: Precision, memory_format: MemoryFormat) -> fs.Federation:
        """Two clients with random samples."""
        rng = np.random.default_rng(0)
        n = 2 * self.samples
        x = rng.normal(size=(n, *self.shape)).astype(np.float32)
        y = rng.integers(0, self.classes, n)
        clients = np.split(np.arange(n), 2)
        task = None
        if self.text:
            x = y = rng.integers(0, self.classes, (n, *self.shape))
            task = fs.tasks.NextCharacter()
        data = fs.FederatedData.from_arrays(x, y, clients, classes=self.classes, task=task)
        model = models.build(self.name, {}, shape=self.shape, classes=self.classes, seed=0)
        engine = LocalEngine("sequential", 1, 1, False, memory_format, 1, precision=precision)
        local = fs.LocalTraining(lr=0.01, batch=self.batch)
        return fs.Federation(model, data, local=local, sampling=fs.Uniform(2), engine=engine, device="cpu")


ROWS = [
    Row("mlp", (64,), 10, 1000, 10),
    Row("lenet5", (1, 28, 28), 10, 500, 10),
    Row("femnist_cnn", (1, 28, 28), 62, 100, 10),
    Row("fmnist_cnn", (1, 28, 28), 10, 500, 50),
    Row("cifar_cnn", (3, 32, 32), 10, 256, 64),
    Row("resnet20_gn", (3, 32, 32), 10, 100, 100),
    Row("resnet18_gn", (3, 32, 32), 10, 50, 50),
    Row("vgg11_gn", (3, 32, 32), 10, 50, 50),
    Row("shakespeare_lstm", (80,), 90, 20, 4, text=True),
]


def training(row: Row, precision: Precision, memory_format: MemoryFormat) -> Callable[[], float]:
    """Trains a round, and returns the samples a second."""
    federation = row.federation(precision, memory_format)
    state = federation.start()
    federation.prepare()

    def measure() -> float:
        nonlocal state
        began = time.perf_counter()
        state, _ = federation.round(state)
        return 2 * row.samples / (time.perf_counter() - began)

    return measure


def main(names: list[str]) -> None:
    print("| model | batch | full, samples/s | bfloat16, samples/s | ratio |\n|---|---|---|---|---|")
    for row in ROWS:
        if names and row.name not in names:
            continue
        formats = get_args(MemoryFormat) if len(row.shape) == 3 else ("contiguous",)
        ways = {(p, f): training(row, p, f) for p in get_args(Precision) for f in formats}
        best = dict.fromkeys(get_args(Precision), 0.0)
        for _ in range(ROUNDS):
            for (precision, _), measure in ways.items():
                best[precision] = max(best[precision], measure())
        full = best["full"]
        low = best["bfloat16"]
        print(f"| `{row.name}` | {row.batch} | {full:,.0f} | {low:,.0f} | {low / full:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
