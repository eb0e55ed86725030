"""More client state than Ray's object store holds: the memory of the server and of the actors.

    python -m benchmarks.client_state --clients 200 --store 200

SCAFFOLD with a model of 1.2 million parameters, 4.8 MB a client. In each round a fifth of the clients take one step,
and each has taken part after five rounds. What does not fit into the store is spilled to the disk by Ray. At the end
the state is saved and loaded again. Memory is without what processes share.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import ray

from benchmarks.cluster import HIDDEN, federation
from fedsash import RayEngine
from fedsash.methods import Scaffold
from fedsash.runs.checkpoints import load, save

PARTS = 5


def memory(kind: str) -> float:
    """A memory of this process in MB: `RssAnon` or `RssShmem`."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[kind].split()[0]) / 1024


def size(folder: Path) -> float:
    """The bytes of the files in a folder, in MB."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--store", type=int, default=200, help="the size of Ray's object store in MB")
    parser.add_argument("--actors", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as spilled, tempfile.TemporaryDirectory() as states:
        ray.init(
            "local",
            num_cpus=given.actors,
            object_store_memory=given.store * 10**6,
            object_spilling_directory=spilled,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
        engine = RayEngine(actors=given.actors, memory_format="contiguous", pieces=10)
        sampled = given.clients // PARTS
        with federation(HIDDEN["1.2 M"], Scaffold(), engine, given.clients, sampled) as world:
            state = world.start()
            world.prepare()
            whole = given.clients * world.layout.size * 4 / 1e6
            print(f"{given.clients} clients, {whole:.0f} MB of client state, an object store of {given.store} MB")
            print(f"{'':8}{'seconds':>9}{'server':>10}{'largest actor':>15}{'spilled':>10}   MB")

            def report(what: str, began: float) -> None:
                own = max((m for _, m in world.executor._pool.processes()), default=0) / 2**20  # type: ignore[attr-defined]
                line = f"{what:8}{time.perf_counter() - began:9.1f}{memory('RssAnon'):10.0f}{own:15.0f}"
                print(f"{line}{size(Path(spilled)):10.0f}", flush=True)

            report("start", time.perf_counter())
            for number in range(2 * PARTS):
                began = time.perf_counter()
                ids = np.arange(number % PARTS, given.clients, PARTS)
                request = world.ask(state, ids=ids)
                state, _ = world.server_round.step(state, request, world.collect(request))
                report(f"round {number + 1}", began)
            began = time.perf_counter()
            path = save(state, Path(states))
            report("saved", began)
            began = time.perf_counter()
            loaded = load(path, world.start())
            request = world.ask(replace(loaded), ids=np.arange(0, given.clients, PARTS))
            world.server_round.step(loaded, request, world.collect(request))
            report("loaded", began)


if __name__ == "__main__":
    main()
