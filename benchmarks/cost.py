"""What each method costs beside FedAvg: gradients, vectors sent, memory, time.

    python -m benchmarks.cost [METHOD ...]

IMA's Fashion-MNIST CNN (274,026 parameters), 4 clients of 200 images of 28 x 28, batch 50, 5 local epochs, SGD; one
process, one thread, one client at a time. Gradients are counted: samples that pass forwards and backwards for each
sample trained on. Vectors are what is sent down and up per client and round, and what server and client remember
between rounds, in models (the model itself counts in what is sent only). Each method is timed in turn with FedAvg,
seven rounds each: the time is the median of the ratios of processor time; the last column is what is left of it when
the gradients are taken out.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedsash as fs
from fedsash import methods, models
from fedsash.engines.gradients import OneByOne
from fedsash.methods import sampling

METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedProx": {"method": methods.FedProx()},
    "EWC": {"method": methods.EWC()},
    "SCAFFOLD (II)": {"method": methods.Scaffold()},
    "SCAFFOLD (I)": {"method": methods.Scaffold("I")},
    "FedDyn": {"method": methods.FedDyn()},
    "AdaBest": {"method": methods.AdaBest()},
    "FedCM": {"method": methods.FedCM()},
    "FedACG": {"method": methods.FedACG()},
    "Mime (SGD)": {"method": methods.Mime(0.0)},
    "Mime (SGDm)": {"method": methods.Mime()},
    "MimeLite (SGDm)": {"method": methods.MimeLite()},
    "FedNova": {"aggregation": methods.FedNova()},
    "FedGMA": {"aggregation": methods.FedGMA()},
    "FedSAM": {"method": methods.FedSAM()},
    "FedASAM": {"method": methods.FedASAM()},
    "MoFedSAM": {"method": methods.MoFedSAM()},
    "FedLESAM": {"method": methods.FedLESAM()},
    "FedFA": {"method": methods.FedFA()},
    "FedSWA": {"method": methods.FedSWA()},
    "FedMoSWA": {"method": methods.FedMoSWA()},
}
ENGINE = fs.LocalEngine("sequential", 1, 1, False, "channels_last", 1)
ROUNDS = 7


def federation(**settings: Any) -> fs.Federation:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (800, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, 800)
    return fs.Federation(
        models.fmnist_cnn((1, 28, 28), 10),
        fs.FederatedData.from_arrays(x, y, np.split(np.arange(800), 4)),
        local=fs.LocalTraining(lr=0.01, batch=50, epochs=5),
        sampling=sampling.Uniform(4),
        engine=ENGINE,
        device="cpu",
        **settings,
    )


def vectors(f: fs.Federation) -> tuple[float, float, float, float]:
    """Models sent down and up by a client, and remembered by the server and by a client."""
    state = f.start()
    request = f.ask(state, ids=np.arange(1))
    down = []
    up = []
    if request.job == "probe":
        (probed,) = f.executor.work(request)
        down = [request.sent]
        up = [probed]
        request = f.ask(state, probed=f.collect(request))
    up += f.executor.work(request)

    def models_in(*tensors: Tensor) -> float:
        return sum(tensor.numel() for tensor in tensors) / f.layout.size

    return (
        models_in(*down, request.sent, *request.server_state.values()),
        models_in(*(value for reply in up for value in reply.upload.values())),
        models_in(*state.server_state.values()),
        models_in(*(rows[0] for rows in state.client_state.values())),
    )


def gradients(f: fs.Federation) -> float:
    """Samples in gradients for each sample trained on."""
    counted = 0
    pieces = OneByOne.pieces

    def counting(self: OneByOne, w: Tensor, batch: Any, *others: Any) -> Any:
        nonlocal counted
        counted += int((batch.weights > 0).sum())
        return pieces(self, w, batch, *others)

    OneByOne.pieces = counting  # type: ignore[method-assign]
    try:
        _, outcome = f.round(f.start())
    finally:
        OneByOne.pieces = pieces  # type: ignore[method-assign]
    return counted / outcome.samples


def slowdown(f: fs.Federation, base: fs.Federation) -> float:
    """The median, over rounds in turn, of the time that a round takes beside one of `base`."""
    states = {id(g): g.start() for g in (f, base)}

    def seconds(g: fs.Federation) -> float:
        began = time.process_time()
        states[id(g)], _ = g.round(states[id(g)])
        return time.process_time() - began

    return float(np.median([seconds(f) / seconds(base) for _ in range(ROUNDS + 1)][1:]))


def main(names: list[str]) -> None:
    torch.manual_seed(0)
    base = federation()
    base.prepare()
    print("| method | gradients | down | up | server | client | time | time / gradients |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names or METHODS:
        f = federation(**METHODS[name])
        f.prepare()
        count = gradients(f)
        time_ = slowdown(f, base)
        sizes = " | ".join(f"{size:.3g}" for size in vectors(f))
        print(f"| {name} | {count:.2f} | {sizes} | {time_:.2f} | {time_ / count:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
