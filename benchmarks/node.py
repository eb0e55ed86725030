"""Where the time of a node's process goes in a round of examples/flower/digits, and that of the server.

    python -m benchmarks.node

Flower starts a process for each message, so all of this is in every round. Each row is the median of five processes.
Seconds are those of a processor core, so that other work on the machine changes them little.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

EXPERIMENT = Path(__file__).parents[1] / "examples" / "flower" / "digits" / "experiment.toml"
PROCESSES = 5


def timed() -> Iterator[tuple[str, float]]:
    """The parts of a process, with their seconds. What comes before them in the list is not in them."""
    from tempfile import TemporaryDirectory

    began = time.process_time()
    import flwr.clientapp  # noqa: F401

    from fedsash.lab.served import apps

    yield "the process imports PyTorch, Flower and fedsash", time.process_time() - began

    began = time.process_time()
    data = apps.data_of(EXPERIMENT, 0)
    yield "it loads the data", time.process_time() - began

    with TemporaryDirectory() as folder:
        yield from _rounds(data, folder)


def _rounds(data: Any, folder: str) -> Iterator[tuple[str, float]]:
    from fedsash.flower import Waiting, client_app
    from fedsash.lab.config import load
    from fedsash.lab.served.apps import over_nodes
    from fedsash.testing.grid import InProcessGrid

    answers: list[float] = []

    def mod(message: Any, context: Any, call: Any) -> Any:
        began = time.process_time()
        reply = call(message, context)
        answers.append(time.process_time() - began)
        return reply

    grid = InProcessGrid(client_app(data, folder=folder, mods=[mod]), {1: {}})
    with over_nodes(load(EXPERIMENT), grid, 1, Waiting(poll=0.001)) as federation:
        state = federation.start()
        federation.prepare(state=state)
        answers.clear()
        began = time.process_time()
        federation.round(state)
        whole = time.process_time() - began
    yield "it makes the model, tries a batch, trains an epoch, keeps its state", answers[0]
    yield "the server packs, sums up and moves", whole - answers[0]


def main() -> None:
    rows: dict[str, list[float]] = {}
    for _ in range(PROCESSES):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.node", "one"], capture_output=True, text=True, check=True
        )
        for line in done.stdout.splitlines():
            name, _, seconds = line.rpartition(" ")
            rows.setdefault(name, []).append(float(seconds))
    for name, each in rows.items():
        print(f"{name:70} {median(each):6.2f} s")


def one() -> None:
    for name, seconds in timed():
        print(name, seconds)


if __name__ == "__main__":
    one() if sys.argv[1:] else main()
