"""Where the clients of a federation live, and what a server knows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

import numpy as np

from .arrays import Ints
from .data.encoded import Encoded
from .data.federated import FederatedData, Problem
from .engines import Engine, Training, Work
from .exchange import Executor


class Clients(Protocol):
    """The clients of a federation: what a server knows of them, and how it reaches them.

    `problem` is what they learn; `sizes` `[N]` are their numbers of training samples, `held` says whether they have
    samples held out. With `remember` they keep their client state themselves, by version (see `Request`).
    """

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

    @property
    def sizes(self) -> Ints:
        return self.data.sizes

    @property
    def held(self) -> bool:
        return any(map(len, self.data.held))

    def open(self, training: Training, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return self.engine.open(Work(training, self.data), rounds)

    def fingerprint(self) -> dict[str, str]:
        """Of the samples about a thousand, evenly spaced."""
        x, y = self.data.train.x, self.data.train.y
        some = slice(None, None, max(len(y) // 1000, 1))
        pixels = np.array(x.rows[some]) if isinstance(x, Encoded) else x[some].cpu().numpy()
        partition = b"".join(crc32(client.tobytes()).to_bytes(4, "big") for client in self.data.clients)
        samples = crc32(np.ascontiguousarray(pixels).tobytes(), crc32(y.cpu().numpy().tobytes()))
        return {
            "data": f"{len(y)} x {list(x.shape[1:])}, {samples:08x}",
            "partition": f"{len(self.data.clients)} clients, {crc32(partition):08x}",
            "transform": repr(self.data.transform),
        }
