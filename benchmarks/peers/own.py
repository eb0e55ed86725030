"""fedsash, with the engine that it chooses for a long run, and what windows of 5, 20 and 100 cost it together.

W6 is its own `shakespeare_lstm`, which is the same function of its parameters as `modules.Shakespeare`.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

import fedsash as fs
from fedsash import models
from fedsash.averages import Observer, Observers

from .clock import Clock
from .modules import fill, module
from .works import PER_ROUND, Given

WINDOWS = (5, 20, 100)
WIDTH = 256


def run(given: Given, clock: Clock, seed: int) -> None:
    work = given.work
    model = module(given)
    if work.name == "W6":
        model = models.MODELS["shakespeare_lstm"]((80,), 90)
        fill(model, translated([torch.from_numpy(value) for value in given.weights]))
    indices = [np.arange(first, first + size) for first, size in given.clients]
    federation = fs.Federation(
        model,
        fs.FederatedData.from_arrays(
            given.x,
            given.y,
            indices,
            classes=work.classes,
            task=fs.tasks.TASKS["next_token" if work.name == "W6" else "classification"](),
        ),
        local=fs.LocalTraining(
            lr=work.lr, batch=work.batch, epochs=work.epochs, optimiser=fs.SGD(momentum=work.momentum)
        ),
        sampling=fs.sampling.Uniform(PER_ROUND),
        seed=seed,
        device="cpu",
    )
    clock.also = {"notes": federation.prepare(rounds=10**6), "windows s": observing(model)}
    state = federation.start()

    def parameters() -> list[np.ndarray]:
        federation.layout.bind(model, state.w)
        values = [p.detach().clone() for p in model.parameters()]
        return [value.numpy() for value in (translated(values, back=True) if work.name == "W6" else values)]

    while True:
        state, outcome = federation.round(state)
        clock.round(outcome.samples, parameters)


def translated(values: list[Tensor], *, back: bool = False) -> list[Tensor]:
    """`Shakespeare`'s parameters as those of `shakespeare_lstm`, or `back`: there the gates are i, g, f, o and the
    forget gates' biases begin at 0, since 1 is added to them."""

    def gates(value: Tensor) -> Tensor:
        if len(value) != 4 * WIDTH:
            return value
        first, second, third, last = value.chunk(4)
        if value.dim() == 1:
            second, third = (second, third + 1) if back else (second - 1, third)
        return torch.cat([first, third, second, last])

    return [gates(value) for value in values]


def observing(model: nn.Module) -> float:
    """Seconds a round that windows cost together, once they are full."""
    w = fs.Layout(model).flatten(model)
    observers = Observers({f"window{size}": Observer(fs.Window(size), [(0, len(w))]) for size in WINDOWS})
    seen = SimpleNamespace(**dict(zip(("averages", "past"), observers.init(w), strict=True)))
    times = []
    for round in range(1, max(WINDOWS) + 30):
        began = time.perf_counter()
        observers.observe(seen, w, round)
        times.append(time.perf_counter() - began)
    return float(np.median(times[-20:]))
