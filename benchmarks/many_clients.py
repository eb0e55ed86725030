"""What many clients cost: the start, a round, and memory, in one process, in worker processes and on Ray's actors.

    python -m benchmarks.many_clients --rounds 5

Two federations: 3,400 clients of FEMNIST's size (28 x 28 grey pixels in bytes, 226 samples each; the pixels are drawn
at random around a mean of each client's own), and 100,000 clients of 20 samples with 60 numbers each. A round asks 100
clients for one pass. Each line is a process of its own. `data` is the time to make the federated data, `build` that of
the federation, and `start` that until the first round is over. `server` is the memory of this process that is in no
file and no object store, `each` that of a worker or an actor which it does not share, and `shared` what is in Ray's
object store. Times are by the clock: run it alone on the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch
from torch import nn

from fedsash import FederatedData, Federation, LocalEngine, LocalTraining, RayEngine, Uniform
from fedsash.engines import Engine

from .cluster import started_ray

PIECES = 64
ASKED = 100
WHERE = ("one process", "2 workers", "1 actor", "2 actors", "4 actors")
HEADS = ("data", "build", "start", "round", "server", "each", "shared")


def femnist() -> tuple[FederatedData, nn.Module]:
    """Images of the size of FEMNIST's, and a small convolution."""
    n = 3_400
    each = 226
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(n), each)
    x = rng.integers(0, 128, (n * each, 28, 28, 1), dtype=np.uint8)
    x += rng.integers(0, 128, n, dtype=np.uint8)[users, None, None, None]
    layers = nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 12 * 12, 62)
    return FederatedData.from_arrays(x, rng.integers(0, 62, len(x)), users=users), nn.Sequential(*layers)


def small() -> tuple[FederatedData, nn.Module]:
    """Very many clients of few samples, and a linear model."""
    n = 100_000
    each = 20
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(n), each)
    x = rng.standard_normal((n * each, 60), dtype=np.float32)
    return FederatedData.from_arrays(x, rng.integers(0, 10, len(x)), users=users), nn.Linear(60, 10)


FEDERATIONS = {"3,400": femnist, "100,000": small}


def engine_of(where: str) -> Engine:
    """The engine of a line of the table."""
    count = int(where.split()[0].replace("one", "1"))
    if "actor" in where:
        return RayEngine(actors=count, pieces=PIECES)
    return LocalEngine("sequential", count, 1, False, "channels_last", 1, pieces=PIECES)


def measured(clients: str, where: str, rounds: int) -> list[str]:
    """The cells of one line."""
    began = time.perf_counter()
    data, model = FEDERATIONS[clients]()
    made = time.perf_counter()
    local = LocalTraining(lr=0.1, batch=20)
    sampling = Uniform(ASKED)
    with Federation(model, data, local=local, sampling=sampling, engine=engine_of(where), device="cpu") as world:
        built = time.perf_counter()
        state = world.start()
        world.prepare()
        state, _ = world.round(state)
        started = time.perf_counter()
        seconds = []
        for _ in range(rounds):
            before = time.perf_counter()
            state, _ = world.round(state)
            seconds.append(time.perf_counter() - before)
        times = [f"{made - began:.1f} s", f"{built - made:.1f} s", f"{started - built:.1f} s"]
        memory = [_anonymous(), _each(world, where), _store() if "actor" in where else 0]
    return [*times, f"{1e3 * median(seconds):.0f} ms", *(f"{value / 1e6:,.0f} MB" for value in memory)]


def _each(world: Federation, where: str) -> float:
    """The mean memory of a worker, or of an actor that has started; 0 in one process."""
    if "actor" not in where:
        return world.memory() / int(where[0]) if where[0].isdigit() else 0
    return mean(memory for _, memory in world.executor._pool.processes())  # type: ignore[attr-defined]


def _anonymous() -> int:
    """The memory of this process in bytes that lies in no file and in no object store."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) * 1024


def _store() -> int:
    """The bytes in Ray's object store."""
    import ray
    from ray._private.internal_api import node_stats

    node = ray.nodes()[0]
    found = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"])
    return int(found.store_stats.object_store_bytes_used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", choices=FEDERATIONS)
    parser.add_argument("--where", choices=WHERE)
    given = parser.parse_args()
    if given.clients and given.where:
        torch.manual_seed(0)
        with started_ray(int(given.where[0])) if "actor" in given.where else nullcontext():
            print("".join(f"{cell:>10}" for cell in measured(given.clients, given.where, given.rounds)))
        return
    print(f"{'clients':9}{'where':13}" + "".join(f"{head:>10}" for head in HEADS))
    for clients in [given.clients] if given.clients else FEDERATIONS:
        for where in [given.where] if given.where else WHERE:
            print(f"{clients:9}{where:13}", end="", flush=True)
            one = [sys.executable, "-m", "benchmarks.many_clients", "--clients", clients, "--where", where]
            subprocess.run([*one, "--rounds", str(given.rounds)], check=False)


if __name__ == "__main__":
    main()
