"""fedsash on a GPU: beside a plain PyTorch loop on the same GPU, and IMA's run on CIFAR-10 with every engine.

    python -m benchmarks.gpu [--out FOLDER]

The goals are ten times the samples a second of the plain loop on W1 to W4 (`benchmarks/peers/works.py`), and the 400
rounds of FedAvg in IMA's setting with three windows and evaluations in two minutes. Images are random numbers: they
do not change the time. The plain loop has its samples on the GPU, too. Without a GPU it says so, and measures nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedsash as fs
from fedsash import models
from fedsash.data.partitions import Shards
from fedsash.methods import schedules

from .peers.__main__ import prepared
from .peers.modules import loss, module
from .peers.own import federation_of
from .peers.works import PER_ROUND, Given

ALONE = fs.LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="contiguous", threads=1)
STACKED = replace(ALONE, kind="vectorised", block=PER_ROUND)
ENGINES = {"one client at a time": ALONE, "stacked": STACKED, "stacked, compiled": replace(STACKED, compile=True)}
GOAL = 10.0
CIFAR_GOAL = 120.0
SECONDS = 5.0
WARM = 3


def rate(rounds: Iterator[int], wait: Callable[[], None]) -> float:
    """Samples a second of rounds, which say how many samples they trained on; the first ones are not timed."""
    for _ in range(WARM):
        next(rounds)
    wait()
    began = time.perf_counter()
    samples = 0
    while time.perf_counter() < began + SECONDS:
        samples += next(rounds)
        wait()
    return samples / (time.perf_counter() - began)


def plain(given: Given, device: str) -> Iterator[int]:
    """The rounds of a loop as one would write it by hand, with the samples on the device."""
    work = given.work
    rng = np.random.default_rng(0)
    model = module(given).to(device)
    local = module(given).to(device)
    x, y = (torch.from_numpy(np.array(part)).to(device) for part in (given.x, given.y))
    while True:
        clients = rng.choice(len(given.clients), PER_ROUND, replace=False)
        total = [torch.zeros_like(p) for p in model.parameters()]
        for client in clients:
            local.load_state_dict(model.state_dict())
            optimiser = torch.optim.SGD(local.parameters(), lr=work.lr, momentum=work.momentum)
            for order in given.orders(client, rng):
                index = torch.from_numpy(order + given.clients[client, 0]).to(device)
                optimiser.zero_grad()
                loss(local(x[index]), y[index]).backward()
                optimiser.step()
            share = given.samples(client) / given.samples(clients)
            with torch.no_grad():
                for sum_, p in zip(total, local.parameters(), strict=True):
                    sum_.add_(p, alpha=share)
        with torch.no_grad():
            for p, mean in zip(model.parameters(), total, strict=True):
                p.copy_(mean)
        yield given.samples(clients)


def ours(given: Given, device: str) -> Iterator[int]:
    """The rounds of fedsash, with the engine that it chooses for a long run."""
    with federation_of(given, module(given), 0, device) as federation:
        print(*federation.prepare(rounds=10**6), sep="\n")
        state = federation.start()
        while True:
            state, report = federation.round(state)
            yield report.samples


def ima(device: str, samples: int, **settings: Any) -> fs.Federation:
    """IMA's federation with CIFAR-10's CNN, two classes a client, and three windows that observe."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples + samples // 5, 3, 32, 32), dtype=np.float32)
    y = rng.integers(0, 10, len(x))
    train = slice(samples)
    test = slice(samples, None)
    clients = Shards(100, classes=2)(y[train], 0)
    return fs.Federation(
        models.build("cifar_cnn", {}, shape=(3, 32, 32), classes=10, seed=0),
        fs.FederatedData.from_arrays(x[train], y[train], clients, test=(x[test], y[test]), classes=10),
        local=fs.LocalTraining(
            lr=0.01,
            batch=50,
            epochs=5,
            optimiser=fs.SGD(momentum=0.9, weight_decay=1e-3),
            schedule=schedules.Exponential(0.99),
        ),
        averages={f"window{size}": fs.Window(size) for size in (5, 20, 100)},
        sampling=fs.Uniform(10),
        evaluation=fs.Evaluation(every=5, last=10),
        device=device,
        **settings,
    )


def cifar(device: str, samples: int = 50_000, rounds: int = 400) -> float:
    """The seconds of a run of `ima`, with its evaluations."""
    federation = ima(device, samples)
    began = time.perf_counter()
    fs.run(federation, rounds, progress=False)
    return time.perf_counter() - began


def engines(device: str, samples: int = 50_000, rounds: int = 10) -> Iterator[str]:
    """A line for each engine: the milliseconds of a round of the same federation, without evaluations."""
    for (name, engine), precision in product(ENGINES.items(), ("full", "bfloat16")):
        with ima(device, samples, engine=replace(engine, precision=precision)) as federation:
            state, _ = federation.round(federation.start())
            began = time.perf_counter()
            for _ in range(rounds):
                state, report = federation.round(state)
                float(state.w[0])  # waits for the device
            seconds = (time.perf_counter() - began) / rounds
        yield f"{name}, {precision}: {seconds * 1e3:.0f} ms a round of {report.samples:,} samples"


def main(out: Path) -> None:
    if not torch.cuda.is_available():
        print("no GPU is here: nothing is measured")
        return
    print(torch.cuda.get_device_name())
    for name in ("W1", "W2", "W3", "W4"):
        given = prepared(name, out / "works" / name)
        by_hand, own = (rate(rounds(given, "cuda"), torch.cuda.synchronize) for rounds in (plain, ours))
        print(f"{name}: plain {by_hand:,.0f} samples/s, fedsash {own:,.0f}: {own / by_hand:.1f} times (goal: {GOAL:g})")
    for line in engines("cuda"):
        print(line)
    print(f"CIFAR-10, 400 rounds: {cifar('cuda'):.0f} s (goal: {CIFAR_GOAL:g})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m benchmarks.gpu")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    main(parser.parse_args().out)
