"""The works W1 to W6, and what all peers are given of them: the same samples, clients and initial weights.

This module needs NumPy only, since every peer reads it with its own Python. A work's folder holds

    x.npy        float32 [n, *shape] (characters: int64), images as N x C x H x W
    y.npy        int64 [n], or [n, 80] for next characters
    clients.npy  int64 [clients, 2]: a client's samples are x[first : first + size]
    weights.npz  the initial parameters, in the order and the layouts of `modules.MODULES`

Samples have a part that tells their class and a part that does not, so a model that is trained can be told from one
that is not. Clients of W5 are slices of 20,000 samples and overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Arrays = tuple[npt.NDArray[Any], Integers]

PER_ROUND = 10
"""Clients in a round."""


@dataclass(frozen=True)
class Work:
    """What is trained. `rounds` is after how many rounds the loss is taken; `warm` rounds are not timed."""

    name: str
    about: str
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    classes: int
    batch: int
    lr: float
    rounds: int
    warm: int = 1
    epochs: int = 1
    momentum: float = 0.0
    distinct: int = 0

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.distinct or sum(self.sizes)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        rng = np.random.default_rng(0)
        make = _text if len(self.shape) == 1 and self.classes == 90 else _patterns
        x, y = make(rng, self.samples, self.shape, self.classes)
        sizes = np.array(self.sizes)
        first = rng.integers(0, self.samples - sizes + 1) if self.distinct else np.cumsum(sizes) - sizes
        return {"x": x, "y": y, "clients": np.stack([first, sizes], 1)}

    def write(self, folder: Path) -> None:
        """Write the arrays once."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self.arrays().items():
            if not (folder / f"{name}.npy").exists():
                np.save(folder / f"{name}.npy", array)


def _patterns(rng: np.random.Generator, n: int, shape: tuple[int, ...], classes: int) -> Arrays:
    """Noise, with a pattern of the sample's class: in images of 4 x 4 blocks."""
    y = rng.integers(0, classes, n)
    x = rng.standard_normal((n, *shape), dtype=np.float32)
    if len(shape) == 1:
        return x + 0.5 * rng.standard_normal((classes, *shape), dtype=np.float32)[y], y
    blocks = rng.standard_normal((classes, shape[0], 4, 4), dtype=np.float32)
    x += np.kron(blocks, np.ones((shape[1] // 4, shape[2] // 4), np.float32))[y]
    return x, y


def _text(rng: np.random.Generator, n: int, shape: tuple[int, ...], classes: int) -> Arrays:
    """Sequences in which every character has four that may follow it, and frequent ones."""
    follows = (classes * rng.random((classes, 4)) ** 3).astype(np.int64)
    text = np.empty((n, shape[0] + 1), np.int64)
    text[:, 0] = rng.integers(0, classes, n)
    for i in range(shape[0]):
        text[:, i + 1] = follows[text[:, i], rng.integers(0, 4, n)]
    return text[:, :-1].copy(), text[:, 1:].copy()


def _long_tailed(clients: int) -> tuple[int, ...]:
    """Sizes from 20 to 400 with a mean of 225, as writers of FEMNIST have."""
    sizes = np.random.default_rng(0).lognormal(np.log(208), 0.6, clients)
    return tuple(np.clip(sizes, 20, 400).astype(int).tolist())


WORKS = {
    work.name: work
    for work in (
        Work("W1", "MLP 64-64-10, 100 x 18, batch 10", (18,) * 100, (64,), 10, 10, 0.1, 100, warm=20),
        Work("W2", "CNN of 1.7 M parameters, 100 x 100, batch 10", (100,) * 100, (1, 28, 28), 62, 10, 0.05, 6),
        Work(
            *("W3", "FMNIST CNN, 100 x 600, batch 50, 5 epochs, momentum", (600,) * 100, (1, 28, 28), 10, 50, 0.001, 2),
            epochs=5,
            momentum=0.9,
        ),
        Work("W4", "ResNet-20-GN, 100 x 500, batch 100", (500,) * 100, (3, 32, 32), 10, 100, 0.05, 2),
        Work(
            *(
                "W5",
                "CNN of W2, 3,400 clients of 20 to 400, batch 10",
                _long_tailed(3400),
                (1, 28, 28),
                62,
                10,
                0.05,
                3,
            ),
            distinct=20_000,
        ),
        Work("W6", "LSTM 256 x 2, 100 x 5 of 80 characters, batch 4", (5,) * 100, (80,), 90, 4, 0.3, 8),
    )
}


class Given:
    """A work as a peer reads it from its folder. Arrays are mapped, so that processes share them."""

    def __init__(self, name: str, folder: str) -> None:
        self.work = WORKS[name]
        self.folder = Path(folder)
        self.x, self.y, self.clients = (np.load(self.folder / f"{part}.npy", "r") for part in ("x", "y", "clients"))

    @cached_property
    def weights(self) -> list[Floats]:
        """The initial parameters."""
        with np.load(self.folder / "weights.npz") as file:
            return list(file.values())

    def client(self, number: int) -> tuple[Floats, Integers]:
        """A client's samples and labels."""
        first, size = self.clients[number]
        return self.x[first : first + size], self.y[first : first + size]

    def orders(self, number: int, rng: np.random.Generator) -> Iterator[Integers]:
        """A client's batches in a round, as places among its samples."""
        size = int(self.clients[number, 1])
        for _ in range(self.work.epochs):
            order = rng.permutation(size)
            yield from (order[i : i + self.work.batch] for i in range(0, size, self.work.batch))

    def samples(self, clients: object) -> int:
        """How many samples these clients train on in a round."""
        return int(self.clients[clients, 1].sum()) * self.work.epochs
