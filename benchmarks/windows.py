"""What a window costs in memory and time, in memory and on the disk, for models of three sizes.

    python -m benchmarks.windows [--only NAME] [--folder FOLDER] [--pause SECONDS] [--rounds N]
    python -m benchmarks.windows --real

In place of the training there is a new vector of random numbers and a pause of so many seconds, in which the disk may
work. All else is what a round of a federation does: its averages observe the vector. First the window is filled without
pauses. Then the rounds are measured, with a window in memory, on the disk, and on the disk as bfloat16, and the average
is asked for after every round, or after every tenth. Each case is a process of its own. `memory` is the peak of its
anonymous memory (RssAnon in /proc/self/status) while the window is at work, beyond what there was before the first
model, in models of float32; freed vectors are given back at once (MALLOC_MMAP_THRESHOLD_). The files lie in FOLDER, or
in the system's folder for temporary files.

`--real` measures a client's local training instead: ResNet18 with group norm on 500 random images of 32 x 32, one epoch
in batches of 50, as in CIFAR-10 over 100 clients. Ten of them, one after another, are a round of realistic length. Then
it runs four rounds of two clients with 50 images each, with a window on the disk that is evaluated after every round,
and without one, and prints the seconds. (Memory is not compared there: what the allocator keeps of a training's
activations goes up and down by more than a window takes.)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import fedsash as fs
from fedsash.averages import Observer, Observers

CASES = {"MobileNetV2": (2_200_000, 370), "ResNet18": (11_200_000, 100), "ViT-Base": (86_000_000, 5)}
"""The number of parameters and the size of the window."""
KINDS: dict[str, dict[str, Any]] = {
    "memory": {"storage": "host"},
    "disk": {"storage": "disk"},
    "disk, bfloat16": {"storage": "disk", "kept_as": "bfloat16"},
}
ASKED = (1, 10)


def anonymous() -> int:
    """The anonymous memory of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@contextmanager
def peak() -> Iterator[SimpleNamespace]:
    """The largest anonymous memory meanwhile, looked at every millisecond."""
    found = SimpleNamespace(bytes=0)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            found.bytes = max(found.bytes, anonymous())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        done.set()
        watching.join()


def measured(d: int, size: int, kind: str, asked: int, pause: float, rounds: int, folder: Path) -> dict[str, float]:
    """The peak of memory in bytes, and the seconds of a round: the median, the mean and the largest."""
    torch.manual_seed(0)
    observers = Observers({"w": Observer(fs.Window(size, **KINDS[kind]), [(0, d)])})
    seconds = []
    most = 0
    if d > 1000:
        measured(1000, 2, kind, asked, 0, 20, folder)  # all that is loaded or made once
    w = torch.randn(d).add_(torch.randn(d), alpha=0.001)
    before = anonymous()
    states = SimpleNamespace()
    states.averages, states.past = observers.init(w, folder)
    for round in range(1, size + rounds + 1):
        if round > size:
            w.add_(torch.randn(d), alpha=0.001)
            time.sleep(pause)
        began = time.perf_counter()
        with peak() as found:
            observers.observe(states, w, round)
            if round % asked == 0 and round >= size - 2 * asked:
                observers.values(states, w)
        most = max(most, found.bytes)
        if round > size:
            seconds.append(time.perf_counter() - began)
    return {"bytes": most - before, "median": median(seconds), "mean": float(np.mean(seconds)), "max": max(seconds)}


def alone(*arguments: Any) -> dict[str, float]:
    """`measured` in a process of its own."""
    code = f"from pathlib import *; from benchmarks.windows import *; print(json.dumps(measured(*{arguments!r})))"
    gives_back = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=gives_back
    ).stdout
    result: dict[str, float] = json.loads(found)
    return result


def table(args: argparse.Namespace) -> None:
    print(f"a pause of {args.pause} s in place of the training; {args.rounds} rounds")
    for name, (d, size) in CASES.items():
        if args.only not in (None, name):
            continue
        for asked in ASKED:
            print(f"\n{name}, {d:,} parameters, W = {size}, asked for every {asked} rounds")
            print(f"{'window':16} {'memory':>8} {'median':>9} {'mean':>9} {'largest':>9}  seconds a round")
            for kind in KINDS:
                with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                    found = alone(d, size, kind, asked, args.pause, args.rounds, Path(folder))
                times = " ".join(f"{found[key]:9.3f}" for key in ("median", "mean", "max"))
                print(f"{kind:16} {found['bytes'] / (4 * d):8.2f} {times}", flush=True)


def federation(clients: int, images: int, averages: dict[str, fs.extend.Average]) -> fs.Federation:
    x = torch.randn(clients * images, 3, 32, 32)
    y = torch.arange(clients * images) % 10
    parts = np.split(np.arange(len(y)), clients)
    data = fs.FederatedData.from_arrays(x, y, parts, test=(x[:10], y[:10]), classes=10)
    engine = fs.LocalEngine("sequential", workers=1, compile=False)
    local = fs.LocalTraining(lr=0.05, batch=50, epochs=1)
    sampling = fs.Uniform(clients)
    model = fs.models.resnet18_gn((3, 32, 32), 10)
    return fs.Federation(model, data, local=local, sampling=sampling, averages=averages, engine=engine)


def real() -> None:
    with federation(1, 500, {}) as world:
        state = world.start()
        state, _ = world.round(state)
        began = time.perf_counter()
        world.round(state)
        seconds = time.perf_counter() - began
    print(f"a client with 500 images takes {seconds:.1f} s; ten of them, a round, {10 * seconds:.0f} s")
    for name, averages in {"without a window": {}, "on the disk": {"w": fs.Window(100, storage="disk")}}.items():
        with tempfile.TemporaryDirectory() as folder, federation(2, 50, averages) as world:
            state = world.start(Path(folder))
            began = time.perf_counter()
            for _ in range(4):
                state, _ = world.round(state)
                world.evaluate(state)
            seconds = (time.perf_counter() - began) / 4
        print(f"{name}: {seconds:.2f} s a round")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--pause", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    real() if args.real else table(args)


if __name__ == "__main__":
    main()
