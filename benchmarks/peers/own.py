"""fedsash, with the engine that it chooses for a long run, and what windows of 5, 20 and 100 cost it together.

It trains the same modules as the others.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
from torch import nn

import fedsash as fs
from fedsash.averages import Observer, Observers

from .clock import Clock
from .modules import module, trained
from .works import PER_ROUND, Given, Work

WINDOWS = (5, 20, 100)


def federation_of(given: Given, model: nn.Module, seed: int, device: str) -> fs.Federation:
    """The work as a federation on a device."""
    return federation_on(given.work, given.x, given.y, given.clients, model, seed, device)


def federation_on(
    work: Work, x: np.ndarray, y: np.ndarray, clients: np.ndarray, model: nn.Module, seed: int, device: str
) -> fs.Federation:
    """The work as a federation with these samples; row i of `clients` has the first of client i, and their number."""
    indices = [np.arange(first, first + size) for first, size in clients]
    return fs.Federation(
        model,
        fs.FederatedData.from_arrays(
            x,
            y,
            indices,
            classes=work.classes,
            task=fs.tasks.TASKS["next_token" if work.name == "W6" else "classification"](),
        ),
        local=fs.LocalTraining(
            lr=work.lr, batch=work.batch, epochs=work.epochs, optimiser=fs.SGD(momentum=work.momentum)
        ),
        sampling=fs.sampling.Uniform(PER_ROUND),
        seed=seed,
        device=device,
    )


def run(given: Given, clock: Clock, seed: int) -> None:
    model = module(given)
    federation = federation_of(given, model, seed, "cpu")
    clock.also = {"notes": federation.prepare(rounds=10**6), "windows s": observing(model)}
    state = federation.start()

    def parameters() -> list[np.ndarray]:
        federation.layout.bind(model, state.w)
        return [p.detach().clone().numpy() for p in trained(model)]

    while True:
        state, outcome = federation.round(state)
        clock.round(outcome.samples, parameters)


def observing(model: nn.Module) -> float:
    """Seconds a round that windows cost together, once they are full."""
    w = fs.extend.Layout(model).flatten(model)
    observers = Observers({f"window{size}": Observer(fs.Window(size), [(0, len(w))]) for size in WINDOWS})
    seen = SimpleNamespace(**dict(zip(("averages", "past"), observers.init(w), strict=True)))
    times = []
    for round in range(1, max(WINDOWS) + 30):
        began = time.perf_counter()
        observers.observe(seen, w, round)
        times.append(time.perf_counter() - began)
    return float(np.median(times[-20:]))
