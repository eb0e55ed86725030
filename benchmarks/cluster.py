"""What a round costs on the actors of a Ray cluster, beside worker processes and one process.

    python -m benchmarks.cluster --rounds 20

Ten clients take one step on one sample each, so nearly all of a round is the traffic of models. P is the number of
pieces: one for each client, or one for each actor. Times are by the clock: the least and the median of the rounds. "MB"
are those that the server's process packs and unpacks in a round. SCAFFOLD's client state is in the cluster, or "here":
it travels with each request, as a small one does. Run it alone on the machine.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import nn

from fedsash import FederatedData, Federation, LocalEngine, LocalTraining, RayEngine, Uniform
from fedsash.engines import Engine
from fedsash.engines.ray import engine as cluster_engine
from fedsash.methods import FedAvg, Method, Scaffold

CLIENTS = 10
LOCAL = {"one process": 1, "2 workers": 2}
ACTORS = (1, 2, 4)
HIDDEN = {"8 k": (10,), "40 k": (50,), "0.2 M": (250,), "1.2 M": (1500,), "10.8 M": (3000, 2800)}
METHODS: dict[str, Method] = {"FedAvg": FedAvg(), "SCAFFOLD": Scaffold()}
NEVER = 2**60


def engines(method: Method) -> Iterator[tuple[str, Engine, int]]:
    """One process, worker processes, and one to four actors; and from which size on client state stays with these."""
    for name, workers in LOCAL.items():
        yield f"{name}, P = {CLIENTS}", LocalEngine("sequential", workers, 1, False, "contiguous", 1, pieces=CLIENTS), 0
    for count, pieces in itertools.product(ACTORS, (CLIENTS, 0)):
        engine = RayEngine(actors=count, memory_format="contiguous", pieces=pieces or count)
        yield f"{count} actors, P = {engine.pieces}", engine, 0
        if isinstance(method, Scaffold) and pieces:
            yield f"{count} actors, P = {engine.pieces}, state here", engine, NEVER


@contextmanager
def started_ray(cores: int) -> Iterator[None]:
    """A Ray of this process's own that believes in so many cores, and reports nothing to anybody."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    ray.init(address="local", num_cpus=cores, **quiet)
    yield
    ray.shutdown()


def federation(
    hidden: tuple[int, ...], method: Method, engine: Engine, clients: int = CLIENTS, sampled: int = CLIENTS
) -> Federation:
    """Clients of one sample, and a model with so many hidden units."""
    sizes = (784, *hidden, 10)
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    data = FederatedData.from_arrays(
        torch.rand(clients, 784), torch.arange(clients) % 10, [[i] for i in range(clients)]
    )
    local = LocalTraining(lr=0.1, batch="full", steps=1)
    sampling = Uniform(sampled)
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


@contextmanager
def counted() -> Iterator[list[int]]:
    """The numbers of bytes that this process packs for actors, and that it unpacks."""
    from fedsash.engines.ray import object_store, on_ray, pool

    bytes_: list[int] = []
    before: list[tuple[Any, str, Callable[[Any], Any]]] = []

    def counting(what: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def count(value: Any) -> Any:
            made = what(value)
            bytes_.append(sum(buffer.nbytes for buffer in made.buffers))
            return made

        return count

    for module, name in ((pool, "packed"), (pool, "copied"), (object_store, "packed"), (on_ray, "packed")):
        before.append((module, name, getattr(module, name)))
        setattr(module, name, counting(getattr(module, name)))
    try:
        yield bytes_
    finally:
        for module, name, what in before:
            setattr(module, name, what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--models", nargs="+", default=["1.2 M", "10.8 M"], choices=HIDDEN)
    given = parser.parse_args()
    print(f"{'model':8}{'method':10}{'where':32}{'least':>10}{'median':>10}{'MB':>8}")
    with started_ray(max(ACTORS)):
        for size, (name, method) in itertools.product(given.models, METHODS.items()):
            for where, engine, least in engines(method):
                cluster_engine.LEAST = least
                with counted() as bytes_:
                    seconds = list(timed(federation(HIDDEN[size], method, engine), given.rounds))
                each = "".join(f"{1e3 * value:7.1f} ms" for value in (min(seconds), median(seconds)))
                through = f"{sum(bytes_) / 1e6 / (given.rounds + 3):8.1f}" if isinstance(engine, RayEngine) else ""
                print(f"{size:8}{name:10}{where:32}{each}{through}", flush=True)


if __name__ == "__main__":
    main()
