"""The fastest that is known with one thread and float32: what twice of it would be on two cores.

Parameters are views of one flat tensor, a step of SGD is one call for all of them, and gradients are not accumulated,
which costs a sixth of W2. glibc keeps freed memory. Images lie channels-last where a client trains faster so, which is
timed before the measurement. W1's clients are stacked instead, and a round is one compiled function: there dispatch is
what costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedsash.engines.processes import keep_freed_memory

from .clock import Clock
from .modules import loss, module, parameters, trained
from .works import PER_ROUND, Given


class Flat:
    """A module as one vector `w`; convolutions in the memory format of the images."""

    def __init__(self, given: Given, memory_format: torch.memory_format) -> None:
        self.given = given
        self.format = memory_format
        self.module = module(given)
        self.parameters = trained(self.module)
        self.moments = [torch.zeros_like(p) for p in self.parameters]
        self.w = torch.zeros(sum(p.numel() for p in self.parameters))
        for p, part in zip(self.parameters, self.w.split([p.numel() for p in self.parameters]), strict=True):
            value = p.detach().clone()
            p.data = self._view(part, value)
            p.data.copy_(value)

    def _view(self, flat: Tensor, like: Tensor) -> Tensor:
        if like.dim() == 4 and self.format == torch.channels_last:
            o, i, h, w = like.shape
            return flat.view(o, h, w, i).permute(0, 3, 1, 2)
        return flat.view(like.shape)

    def samples(self, client: int) -> tuple[Tensor, Tensor]:
        x, y = (torch.from_numpy(part.copy()) for part in self.given.client(client))
        if x.dim() == 4 and self.format == torch.channels_last:
            x = x.permute(0, 2, 3, 1).contiguous()
        return x, y

    def train(self, client: int, rng: np.random.Generator) -> None:
        """Train `w` on this client's samples."""
        work = self.given.work
        x, y = self.samples(client)
        nhwc = x.dim() == 4 and self.format == torch.channels_last
        torch._foreach_zero_(self.moments)
        for index in map(torch.from_numpy, self.given.orders(client, rng)):
            batch = x[index].permute(0, 3, 1, 2) if nhwc else x[index]
            step: Any = torch.autograd.grad(loss(self.module(batch), y[index]), self.parameters)
            with torch.no_grad():
                if work.momentum:
                    torch._foreach_mul_(self.moments, work.momentum)
                    torch._foreach_add_(self.moments, step)
                    step = self.moments
                torch._foreach_add_(self.parameters, step, alpha=-work.lr)


def one_by_one(given: Given, clock: Clock, rng: np.random.Generator) -> None:
    flat = faster(given)
    clock.also["memory format"] = str(flat.format).removeprefix("torch.")
    start = flat.w.clone()
    while True:
        clients = rng.choice(len(given.clients), PER_ROUND, replace=False)
        mean = torch.zeros_like(start)
        for client in clients:
            flat.w.copy_(start)
            flat.train(client, rng)
            mean.add_(flat.w, alpha=given.samples(client) / given.samples(clients))
        flat.w.copy_(mean)
        start = mean
        clock.round(given.samples(clients), parameters(flat.module))


def faster(given: Given) -> Flat:
    """The memory format in which one client trains faster, the second time."""
    formats = (
        [torch.contiguous_format, torch.channels_last] if len(given.work.shape) == 3 else [torch.contiguous_format]
    )
    times = []
    for memory_format in formats:
        flat = Flat(given, memory_format)
        flat.train(0, np.random.default_rng(0))
        began = time.perf_counter()
        flat.train(0, np.random.default_rng(0))
        times.append(time.perf_counter() - began)
    return Flat(given, formats[times.index(min(times))])


def stacked(given: Given, clock: Clock, rng: np.random.Generator) -> None:
    """All clients of a round in one compiled function; they have equal sizes, and train one epoch."""
    model = module(given)
    work = given.work
    names = [name for name, _ in model.named_parameters()]

    def mean_loss(values: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(model, dict(zip(names, values, strict=True)), x), y)

    @torch.compile
    def round_of(values: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
        w = [value.expand(PER_ROUND, *value.shape) for value in values]
        for at in range(0, x.shape[1], work.batch):
            batch = slice(at, at + work.batch)
            g = vmap(grad(mean_loss))(w, x[:, batch], y[:, batch])
            w = [value - work.lr * slope for value, slope in zip(w, g, strict=True)]
        return [value.mean(0) for value in w]

    x, y = (
        torch.from_numpy(part.reshape(len(given.clients), -1, *part.shape[1:]).copy()) for part in (given.x, given.y)
    )
    values = [p.detach().clone() for p in trained(model)]
    while True:
        clients = rng.choice(len(given.clients), PER_ROUND, replace=False)
        order = rng.permuted(np.tile(np.arange(x.shape[1]), (PER_ROUND, 1)), axis=1)
        at = torch.from_numpy(clients)[:, None], torch.from_numpy(order)
        values = round_of(values, x[at], y[at])
        clock.round(given.samples(clients), lambda now=values: now)


def run(given: Given, clock: Clock, seed: int) -> None:
    keep_freed_memory()
    way: Any = stacked if given.work.name == "W1" else one_by_one
    way(given, clock, np.random.default_rng(seed))
