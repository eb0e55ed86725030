"""What `fedsash.flower.Averaged` adds to a round of Flower: time and memory.

    python -m benchmarks.averaged [PARAMETERS]

A strategy that costs nothing gives a new model of 10.8 million float32 parameters, in 62 arrays, after each round. Each
row is a process of its own. The time is that between two rounds, without the first; the memory is what the process has
for itself at its most, beyond what the strategy alone has (`RssAnon`), and a window on disk is in its file.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

ROWS: dict[str, tuple[dict[str, Any] | None, bool, int]] = {
    "the strategy alone": (None, False, 12),
    "Window(5)": ({"size": 5}, False, 24),
    "Window(5), saved": ({"size": 5}, True, 24),
    "Window(100) in memory": ({"size": 100, "storage": "host"}, False, 120),
    "Window(100) on disk": ({"size": 100, "storage": "disk"}, False, 120),
    "Window(100) on disk, saved": ({"size": 100, "storage": "disk"}, True, 120),
}
"""The window's settings, or None; whether the state is saved after each round; the number of rounds."""


def anonymous() -> int:
    """The memory that this process has for itself, in bytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


def measured(name: str, parameters: int) -> tuple[float, float, int]:
    """The best and the median seconds of a round, and the most memory."""
    logging.disable(logging.WARNING)  # Flower tells of each round
    import torch
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy

    import fedsash as fs

    torch.set_num_threads(1)
    settings, saved, rounds = ROWS[name]
    base = [np.random.default_rng(0).standard_normal(parameters // 62, dtype=np.float32) for _ in range(62)]

    class Free(Strategy):  # type: ignore[misc]
        """Trains nobody: the next model is made of noise."""

        def __init__(self) -> None:
            self.times: list[float] = []
            self.memory = 0

        def configure_train(self, server_round: int, arrays: Any, config: ConfigRecord, grid: Grid) -> list[Message]:
            self.times.append(time.perf_counter())
            self.memory = max(self.memory, anonymous())
            return []

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
            return ArrayRecord({f"w{i}": Array(one + np.float32(server_round)) for i, one in enumerate(base)}), None

        def configure_evaluate(self, *_: Any, **__: Any) -> list[Message]:
            return []

        def aggregate_evaluate(self, *_: Any, **__: Any) -> None:
            return None

        def summary(self) -> None:
            return None

    class Nobody(Grid):  # type: ignore[misc]
        """A grid without nodes."""

        run = property(lambda self: None)

        def send_and_receive(self, *_: Any, **__: Any) -> list[Message]:
            return []

        set_run = create_message = get_node_ids = push_messages = pull_messages = send_and_receive

    strategy = Free()
    with tempfile.TemporaryDirectory() as folder:
        outer: Any = strategy
        if settings is not None:
            outer = fs.flower.Averaged(strategy, fs.Window(**settings), folder=folder if saved else None)
        first = ArrayRecord({f"w{i}": Array(one) for i, one in enumerate(base)})
        outer.start(Nobody(), first, num_rounds=rounds)
    seconds = np.diff(strategy.times)[1:]
    return float(seconds.min()), float(np.median(seconds)), strategy.memory


def main(parameters: int) -> None:
    print(f"{parameters:,} parameters; what is added to a round\n{'':28}  best s  median s       GB")
    alone = (0.0, 0.0, 0)
    for name in ROWS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own:
            found = own.submit(measured, name, parameters).result()
        alone = alone if any(alone) else found
        best, median, memory = (value - base for value, base in zip(found, alone, strict=True))
        print(f"{name:28}  {best:6.2f}  {median:8.2f}  {memory / 1e9:7.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_800_000)
