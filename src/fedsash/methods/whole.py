"""A method applied to whole models: it sees the common parameters only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..basics.arrays import Vectors
from ..basics.sharing import Sharing
from .base import Method, RoundMean, check_update


@dataclass(frozen=True, eq=False)
class WholeMethod:
    """The functions of a `method` for whole models `[D]`, of which it sees what `sharing` says."""

    method: Method
    sharing: Sharing

    def server_state(self, w: Tensor) -> Vectors:
        """The server state before the first round, given the initial model `w` `[D]`."""
        return self.method.server_state(self.sharing.common_of(w), self.sharing.common)

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        """The model `[D]` from which the clients of `round` start, and the vectors that they get with it."""
        common, vectors = self.method.send(self.sharing.common_of(w), server_state, round)
        return self.sharing.with_common(common, w), vectors

    def server_update(self, received: RoundMean, server_state: Vectors) -> tuple[Tensor, Vectors]:
        """The update `[D]` that the server optimiser gets, and the new `server_state`; `received.sent` is common."""
        delta, found = self.method.server_update(received)
        check_update(self.method, delta, found, server_state, received)
        kept = {name: found[name] for name in server_state}  # the means of a probe are of this round only
        return self.sharing.model_change(delta, received.mean), kept
