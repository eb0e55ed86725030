"""Running sums that are kept during a training, and the averages that follow from them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..settings.errors import check, some
from ..vector import exact_sums
from ..vector.arrays import Vectors
from ..vector.pieces import Pieces
from . import profiles
from .places import place_for
from .profiles import Profile
from .swa import SWA
from .trajectory import Trajectory

SUM = SWA(1)
"""The average whose state is the running sum: SWA from the first model on."""

Weights = NDArray[np.float64]


@dataclass(eq=False)
class RunningSum:
    """S_n = w_1 + ... + w_n: the sum of the first n = `count` models.

    It is `high + low`, float64 `[d]` (see `exact_sums`).
    """

    high: Tensor
    low: Tensor
    count: int

    @classmethod
    def of(cls, state: Vectors) -> RunningSum:
        """The sum in a state of `SUM`, on the host; it shares the memory of a state that is on the host."""
        return cls(state["high"].cpu(), state["low"].cpu(), int(state["seen"]))

    @classmethod
    def empty(cls, size: int) -> RunningSum:
        """The sum S_0 of no model, for models of `size` numbers."""
        return cls(torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64), 0)

    def cut(self, start: int, stop: int) -> RunningSum:
        """The same sum of some entries of the models, as a view."""
        return RunningSum(self.high[start:stop], self.low[start:stop], self.count)

    def mean_since(self, earlier: RunningSum, like: Tensor) -> Tensor:
        """The mean `[d]` of the models after `earlier` in the type and on the device of `like` (see `exact_sums.mean`).

            (S_n - S_m) / (n - m)

        This is the value of a window of n - m models after n models.
        """
        high = self.high.clone()
        low = self.low.clone()
        exact_sums.add(high, low, minus=[Pieces.of(earlier.high)])
        low -= earlier.low
        return exact_sums.mean(high, low, self.count - earlier.count, like)


def window_starts(counts: Mapping[int, int], at: int) -> dict[int, int]:
    """The last round before each window that ends at round `at` and begins where a sum is, by the window's size.

    `counts` has the number of models in each sum, by round, ascending from 0 models at round 0.
    """
    starts: dict[int, int] = {}
    for round, count in counts.items():
        if count < counts[at]:
            size = counts[at] - count
            starts[size] = round
    return starts


@dataclass(frozen=True)
class Triangle:
    """All windows between the sums of a training: the `sizes` `[ends][windows]` of those that end at each of `ends`.

    Both ascend. n sums give n (n + 1) / 2 windows.
    """

    ends: list[int]
    sizes: list[list[int]]

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Triangle:
        """The windows between sums, of which `counts` has the numbers of models (see `window_starts`)."""
        ends = [end for end, count in counts.items() if count > 0]
        return cls(ends, [sorted(window_starts(counts, end)) for end in ends])

    def __len__(self) -> int:
        return sum(map(len, self.sizes))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The end and the size of each window: end by end, the smallest first."""
        for end, sizes in zip(self.ends, self.sizes, strict=True):
            for size in sizes:
                yield end, size


def by_size(
    all_sizes: Sequence[Sequence[int]], all_values: Sequence[Sequence[float | None]]
) -> tuple[list[int], list[list[float | None]]]:
    """The values `[ends][windows]` of windows of these sizes as a grid: the sizes, ascending, and `[size][end]`.

    None where no window of a size ends.
    """
    columns = []
    for sizes, values in zip(all_sizes, all_values, strict=True):
        columns.append(dict(zip(sizes, values, strict=True)))
    different = sorted(set().union(*all_sizes))
    return different, [[column.get(size) for column in columns] for size in different]


def combined(sums: Iterable[RunningSum], weights: Weights, like: Tensor) -> list[Tensor]:
    """K weighted means of blocks of models, in one pass: vectors `[d]` of the type of `like`.

    `sums` are successive running sums, the first of them S_0. A block holds the models between two successive sums.
    Row k of `weights` float64 `[K, blocks]` has the weight of each block's mean in the k-th result.
    """
    iterator = iter(sums)
    before = next(iterator)
    results = [torch.zeros_like(before.high) for _ in weights]
    for after, block_weights in zip(iterator, weights.T, strict=True):
        mean = after.mean_since(before, after.high)
        for result, weight in zip(results, block_weights, strict=True):
            result.add_(mean, alpha=float(weight))
        before = after
    return [result.to(like) for result in results]


TOGETHER = 8
"""The number of averages that are computed in one pass over the sums. Each needs the memory of a model in float64."""


def approximations(
    counts: Mapping[int, int],
    sum_after: Callable[[int], RunningSum],
    all_profiles: Sequence[Profile],
    like: Tensor,
) -> Iterator[tuple[Tensor, float]]:
    """The approximation `[d]` of the average of each profile `[n]`, like `like`, and its error (`profiles.misplaced`).

    `counts` has the number of models in each sum, by round, ascending from 0 models at round 0 to n. `sum_after(round)`
    gives such a sum; they are asked for one after another, since each may be read from a disk.
    """
    rounds: dict[int, int] = {}
    for round, count in counts.items():
        rounds.setdefault(count, round)  # of rounds with equally many models the first
    ends = sorted(rounds)
    for first in range(0, len(all_profiles), TOGETHER):
        group = all_profiles[first : first + TOGETHER]
        weights = np.stack([profiles.block_weights(profile, ends) for profile in group])
        averages = combined((sum_after(rounds[end]) for end in ends), weights, like)
        for w, profile in zip(averages, group, strict=True):
            yield w, profiles.misplaced(profile, ends)


class Approximation(dict[str, Tensor]):
    """The tensors of an average after the fact, by their names.

    `error` is the share of its weight that lies on other models of the same block (see `profiles.misplaced`).
    """

    def __init__(self, tensors: Mapping[str, Tensor], error: float) -> None:
        super().__init__(tensors)
        self.error = error


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
        """For each sum that is kept, its round and the number of its models."""
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
        return self.count_by_round().get(round, 0)

    def begins(self, size: int, at: int) -> int:
        """The round before a window of `size` models that ends at `at`. Raises `SettingError` without its sum."""
        self.check(at)
        starts = window_starts(self.count_by_round(), at)
        check(size in starts, "size", size, f"after update {at} a window can have {some(sorted(starts))} models")
        return starts[size]

    def check(self, at: int) -> None:
        """Raise `SettingError` if no sum is kept after the round `at`."""
        check(at in self.rounds, "at", at, f"there are running sums after the updates {some(self.rounds) or 'none'}")

    def mean(self, begins: int, at: int, like: Tensor) -> Tensor | None:
        """The mean `[d]` of the models after `begins` up to `at`, like `like`; None if there are none."""
        if self.count(at) <= self.count(begins):
            return None
        return self.of(at).mean_since(self.of(begins), like)

    def approximation(self, profile: Callable[[int], Profile], at: int, like: Tensor) -> tuple[Tensor, float] | None:
        """The average `[d]`, like `like`, of the models up to `at`, and its error; None if there are none.

        `profile(n)` gives its weights `[n]`.
        """
        n = self.count(at)
        if not n:
            return None
        counts: dict[int, int] = {}
        for round, count in self.count_by_round().items():
            if round <= at:
                counts[round] = count
        return next(approximations(counts, self.of, [profile(n)], like))

    def count_by_round(self) -> dict[int, int]:
        """The number of models in each sum, by its round; 0 at round 0."""
        counts = {0: 0}
        for round, count in self.counts.tolist():
            counts[int(round)] = int(count)
        return counts

    def tensors(self) -> Vectors:
        """The sums as named tensors, which are not copies."""
        named: Vectors = {"sums/counts": self.counts}
        for round, row in self._past.items():
            named[f"sums/{round}"] = row
        return named

    def load(self, saved: Callable[[str], Tensor]) -> None:
        """Fill in what `tensors` gave."""
        self.counts = saved("sums/counts").to("cpu", copy=True)
        self._past.fill(self.counts[:, 0].tolist(), lambda round: saved(f"sums/{round}"))
