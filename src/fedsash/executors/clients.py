"""Where the clients of a federation live, and what a server knows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from ..basics.arrays import Ints
from ..basics.errors import check
from ..basics.fingerprint import text
from ..data.encoded import EncodedImages
from ..data.federated import FederatedData, Problem
from ..exchange import Executor
from . import Engine, Training, Work


class Clients(Protocol):
    """The clients of a federation: what a server knows of them, and how it reaches them.

    `problem` is what they learn, `data` are their samples where they are in this process, else None; `sizes` `[N]` are
    their numbers of training samples, `held` says whether they have samples held out. With `remember` they keep their
    client state themselves, by version (see `Request`).
    """

    @property
    def data(self) -> FederatedData | None: ...

    @property
    def problem(self) -> Problem: ...

    @property
    def sizes(self) -> Ints: ...

    @property
    def held(self) -> bool: ...

    @property
    def remember(self) -> bool: ...

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """An executor that reaches them, and lines that say what was chosen; `rounds` is the run's length, if known."""
        ...

    def settled(self, began: Mapping[str, Any]) -> Clients:
        """These clients, reached as their executor has `described` it when the run began."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """What of them determines a run's numbers, by name, as far as the server can know."""
        ...


@dataclass(frozen=True, eq=False)
class Here:
    """Clients whose samples are in this process; an engine trains them."""

    data: FederatedData
    engine: Engine
    remember: bool = False

    @property
    def problem(self) -> Problem:
        return self.data.problem

    @cached_property
    def sizes(self) -> Ints:
        return self.data.sizes

    @property
    def held(self) -> bool:
        return any(map(len, self.data.held))

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return self.engine.open(Work(training, self.data), rounds)

    def settled(self, began: Mapping[str, Any]) -> Here:
        return replace(self, engine=self.engine.settled(began))

    def fingerprint(self) -> dict[str, str]:
        """Of the samples about a thousand, evenly spaced."""
        x, y = self.data.train.x, self.data.train.y
        some = slice(None, None, max(len(y) // 1000, 1))
        pixels = x.rows[some] if isinstance(x, EncodedImages) else x[some]
        numbers = np.empty(0, dtype=np.int64) if self.data.numbers is None else self.data.numbers
        partition = np.concatenate([self.data.sizes, *self.data.clients, numbers])
        return {
            "data": f"{len(y)} samples: x {text(pixels)}, y {text(y)}",
            "partition": f"{len(self.data.clients)} clients: {text(partition)}",
            "transform": text(self.data.transform),
        }


def here(data: FederatedData, engine: Engine, device: torch.device, held_out: float, seed: int) -> Here:
    """Clients whose samples are on `device`, without the share `held_out` of each one's, which is drawn by `seed`.

    Raises `ValueError` if that is of no client a sample.
    """
    clients = Here(data.to(device).hold_out(held_out, seed), engine)
    right = f"must hold out a sample of the largest client, which has {data.sizes.max()}, or be 0"
    check(held_out == 0 or clients.held, "evaluation.held_out", held_out, right)
    return clients


class Running:
    """The executor that reaches clients: started when it is first needed, ended by `close`, and started again."""

    def __init__(self, clients: Clients, training: Callable[[], Training]) -> None:
        self._clients, self._training = clients, training
        self._executor: Executor | None = None

    def start(self, rounds: int | None = None) -> list[str]:
        """Start it, if it is not at work; lines that say what was chosen."""
        if self._executor is not None:
            return []
        self._executor, notes = self._clients.open(self._training(), rounds)
        return notes

    @property
    def executor(self) -> Executor:
        """The executor at work."""
        self.start()
        assert self._executor is not None
        return self._executor

    @property
    def begun(self) -> Executor | None:
        """The executor, if it is at work."""
        return self._executor

    def close(self) -> None:
        """End it."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None
