"""What a round costs on the actors of a Ray cluster, beside worker processes and one process.

    python -m benchmarks.cluster --rounds 20

Ten clients take one step on one sample each, so nearly all of a round is the traffic of models. P is the number of
pieces: one for each client, or one for each actor. Times are by the clock: the least and the median of the rounds. Run
it alone on the machine.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch
from torch import nn

from fedsash import FederatedData, Federation, LocalEngine, LocalTraining, RayEngine, Uniform
from fedsash.executors import Engine
from fedsash.methods import FedAvg, Method, Scaffold

CLIENTS = 10
LOCAL = {"one process": 1, "2 workers": 2}
ACTORS = (1, 2, 4)
HIDDEN = {"1.2 M": (1500,), "10.8 M": (3000, 2800)}
METHODS: dict[str, Method] = {"FedAvg": FedAvg(), "SCAFFOLD": Scaffold()}


def engines() -> dict[str, Engine]:
    """One process, worker processes, and one to four actors."""
    local = {
        f"{name}, P = {CLIENTS}": LocalEngine("sequential", n, 1, False, "contiguous", 1, pieces=CLIENTS)
        for name, n in LOCAL.items()
    }
    actors = {
        f"{count} actors, P = {pieces}": RayEngine(actors=count, memory_format="contiguous", pieces=pieces)
        for count in ACTORS
        for pieces in (CLIENTS, count)
    }
    return local | actors


@contextmanager
def started_ray(cores: int) -> Iterator[None]:
    """A Ray of this process's own that believes in so many cores, and reports nothing to anybody."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    ray.init(address="local", num_cpus=cores, **quiet)
    yield
    ray.shutdown()


def federation(hidden: tuple[int, ...], method: Method, engine: Engine) -> Federation:
    """Clients of one sample, and a model with so many hidden units."""
    sizes = (784, *hidden, 10)
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    data = FederatedData.from_arrays(torch.rand(CLIENTS, 784), torch.arange(CLIENTS), [[i] for i in range(CLIENTS)])
    local, sampling = LocalTraining(lr=0.1, batch="full", steps=1), Uniform(CLIENTS)
    return Federation(nn.Sequential(*layers[:-1]), data, method, local, sampling=sampling, engine=engine, device="cpu")


def timed(world: Federation, rounds: int) -> Iterator[float]:
    """The seconds of each round, without the first three."""
    with world:
        state = world.start()
        world.prepare()
        for round in range(rounds + 3):
            began = time.perf_counter()
            state, _ = world.round(state)
            if round >= 3:
                yield time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    print(f"{'model':8}{'method':10}{'where':22}{'least':>10}{'median':>10}")
    with started_ray(max(ACTORS)):
        for (size, hidden), (name, method) in itertools.product(HIDDEN.items(), METHODS.items()):
            for where, engine in engines().items():
                seconds = list(timed(federation(hidden, method, engine), given.rounds))
                each = "".join(f"{1e3 * value:7.1f} ms" for value in (min(seconds), median(seconds)))
                print(f"{size:8}{name:10}{where:22}{each}", flush=True)


if __name__ == "__main__":
    main()
