"""Running sums that are kept during a training, so that any window between two of them can be asked for later."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..settings.errors import check, some
from ..vector.arrays import Vectors
from .places import place_for
from .running import RunningSum, window_starts
from .trajectory import Trajectory

ROWS = 8
"""The number of sums for which there is room at first; then for so many more each time."""


class KeptSums:
    """The running sums S_n of models like `w` `[d]` after every `every`-th round. A sum takes 16 d bytes.

    They lie in memory, or on disk if memory is short (see `storage.rows`).
    """

    def __init__(self, every: int, w: Tensor) -> None:
        self.every = every
        self._size = len(w)
        self.counts = torch.zeros((0, 2), dtype=torch.int64)
        like = torch.empty(1, dtype=torch.float64).expand(2 * len(w))
        self._past = Trajectory(place_for(ROWS, like, "auto"), part="sums").share()

    @property
    def rounds(self) -> list[int]:
        """The rounds whose sums are kept."""
        return list(self._past)

    def observe(self, state: Vectors, round: int) -> None:
        """Keep the sum in a state of `SUM` if the round is one of those to keep."""
        if round % self.every:
            return
        self._past.trajectory.put(round, torch.cat([state["high"], state["low"]]).cpu())
        self._past.rounds = [*self._past.rounds, round]
        self.counts = torch.cat([self.counts, torch.tensor([[round, int(state["seen"])]])])

    def of(self, round: int) -> RunningSum:
        """The sum after a round, or no sum if none is kept there."""
        if round not in self._past.rounds:
            return RunningSum.empty(self._size)
        high, low = self._past[round].view(2, self._size)
        return RunningSum(high, low, self.count(round))

    def count(self, round: int) -> int:
        """How many models the sum after a round has."""
        return self._models().get(round, 0)

    def begins(self, size: int, at: int) -> int:
        """The round before a window of `size` models that ends at `at`. Raises `SettingError` without its sum."""
        check(at in self.rounds, "at", at, f"there are running sums after the updates {some(self.rounds) or 'none'}")
        starts = window_starts(self._models(), at)
        check(size in starts, "size", size, f"after update {at} a window can have {some(sorted(starts))} models")
        return starts[size]

    def mean(self, begins: int, at: int, like: Tensor) -> Tensor | None:
        """The mean `[d]` of the models after `begins` up to `at`, like `like`; None if there are none."""
        if self.count(at) <= self.count(begins):
            return None
        return self.of(at).mean_since(self.of(begins), like)

    def _models(self) -> dict[int, int]:
        """The number of models in each sum, by its round."""
        return {0: 0} | {int(round): int(count) for round, count in self.counts.tolist()}

    def tensors(self) -> Vectors:
        """The sums as named tensors, which are not copies."""
        return {"sums/counts": self.counts} | {f"sums/{round}": row for round, row in self._past.items()}

    def load(self, saved: Callable[[str], Tensor]) -> None:
        """Fill in what `tensors` gave."""
        self.counts = saved("sums/counts").to("cpu", copy=True)
        self._past.fill(self.counts[:, 0].tolist(), lambda round: saved(f"sums/{round}"))
