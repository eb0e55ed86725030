"""What the process that you start has to do in a round on a cluster, piece by piece, and what actors cost.

    python -m benchmarks.cluster_limits

With P pieces, a round puts one model into Ray's object store, makes P calls, and opens and adds P sums. Here each of
these is timed by itself, on this machine: the median of 20. What goes over a network is not timed. Run it alone on the
machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from fedsash.client.messages import PartialSum, Request
from fedsash.engines.uploads import Uploads
from fedsash.methods import FedAvg, WeightedMean

from .cluster import started_ray

SIZES = {"1.2 M": 1_193_010, "10.8 M": 10_785_810}
TIMES = 20


class Summing:
    """An actor that gives back sums of any size."""

    def ready(self) -> None:
        """Nothing; it has started."""

    def sums(self, size: int, place: int) -> Any:
        """The sum of a piece of one client."""
        from fedsash.engines.ray.object_store import packed

        sums = {"delta": torch.ones(size)}
        return packed(PartialSum(accepted=np.array([place]), sums=sums, client_state={}, samples=1))


def timed(work: Callable[[], object]) -> float:
    """The seconds of some work."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def of_size(actor: Any, size: int) -> dict[str, float]:
    """The seconds of each part of a round that grows with the model."""
    import ray

    from fedsash.engines.ray.object_store import copied, packed, unpacked

    found: dict[str, list[float]] = {"put the model": [], "open a sum": [], "add a sum": []}
    ids = np.arange(TIMES)
    request = Request(job="train", round=0, ids=ids, sent=torch.empty(0), server_state={})
    uploads = Uploads(request, WeightedMean(), FedAvg(), np.ones(TIMES, dtype=np.int64), TIMES)
    model = torch.rand(size)
    for place in ids.tolist():
        found["put the model"].append(timed(lambda: ray.put(packed(model))))
        answer = ray.get(actor.sums.remote(size, place))
        opened = list[Any]()
        found["open a sum"].append(timed(lambda: opened.append(unpacked(copied(answer)))))  # noqa: B023 -- called here
        found["add a sum"].append(timed(lambda: uploads.take(opened[0])))  # noqa: B023
    return {name: median(seconds) for name, seconds in found.items()}


def calls_a_second(actors: list[Any], count: int = 2000) -> float:
    """How many calls of actors this process makes and hears of in a second, with one call at each actor at a time."""
    import ray

    def work() -> None:
        busy = {actor.ready.remote(): actor for actor in actors}
        for _ in range(count):
            [ended], _ = ray.wait([*busy], num_returns=1)
            actor = busy.pop(ended)
            ray.get(ended)
            busy[actor.ready.remote()] = actor
        ray.get([*busy])

    return count / timed(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    import ray

    with started_ray(4):
        remote = ray.remote(num_cpus=1)(Summing)
        actors = list[Any]()
        starts = list[float]()
        for _ in range(4):
            actors.append(remote.remote())
            starts.append(timed(lambda: ray.get(actors[-1].ready.remote())))
        print(f"{'start an actor, alone':28}{median(starts):10.2f} s")
        for count in (1, 2, 4):
            print(f"{f'calls of {count} actors':28}{calls_a_second(actors[:count]):10,.0f} a second")
        parts = {name: of_size(actors[0], size) for name, size in SIZES.items()}
        for name in next(iter(parts.values())):
            cells = "".join(f"{1e3 * seconds[name]:10.2f} ms at {size}" for size, seconds in parts.items())
            print(f"{name:28}{cells}")


if __name__ == "__main__":
    main()
