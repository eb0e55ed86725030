"""Averages that a run did not keep, from its running sums: windows exactly, EMAs approximately."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from ...averages import sum_files
from ...averages.afterwards import RunningSum, approximations, window_starts
from ...averages.profiles import Profile
from ...evaluation import Score
from ...evaluation.history import COMPARED
from ...runs import running_sums
from ...server.state import State
from ...settings.errors import RunError, check
from ...tasks import Criterion
from .opened import OpenRun

MISSING = (
    "keeps no running sums of its models; a run does with trajectory.every = 10, say, in its experiment file. Trained "
    "again with it and the same seed, it makes the same models"
)


@dataclass(frozen=True, eq=False)
class Judged:
    """An average and its metrics. `error` is the share of its weight that lies on other models (see `profiles`).

    `metrics` are those on the first of the splits `COMPARED` that the run has. `held_out` are None without such data.
    """

    w: Tensor
    metrics: Score
    held_out: Score | None
    error: float = 0.0


class Afterwards:
    """The models of a `run` up to round `at`, whose sum must be saved. None: the last saved sum.

    `counts` has the number of models in each saved sum up to there, by round. It begins with no models at round 0.
    Raises `ValueError` if the run has no sums, or no sum of that round.
    """

    def __init__(self, run: OpenRun, at: int | None = None) -> None:
        self.run = run
        self.folder = run.folder / running_sums.FOLDER
        rounds = sum_files.kept(self.folder)
        if not rounds:
            raise RunError(f"{run.folder} {MISSING}")
        self.round = rounds[-1] if at is None else at
        check(self.round in rounds, "at", self.round, f"there are sums of the rounds {listed(rounds)}")
        self.counts = {0: 0}
        for saved in rounds:
            if saved <= self.round:
                self.counts[saved] = sum_files.count(self.folder, saved)
        if self.count == 0:
            raise RunError(f"{run.folder}: no round up to {self.round} has made a model")
        self._like = run.federation.layout.flatten(run.federation.module)

    @property
    def count(self) -> int:
        """The number of models, n."""
        return self.counts[self.round]

    @property
    def sizes(self) -> list[int]:
        """The sizes of all windows that end here and begin at a saved sum, ascending."""
        return sorted(window_starts(self.counts, self.round))

    def begins(self, size: int) -> int:
        """The last round before a window of this size. Raises `ValueError` if its sum is not saved."""
        starts = window_starts(self.counts, self.round)
        possible = f"after round {self.round} a window can have {listed(self.sizes)} models: it begins where a sum is"
        check(size in starts, "window", size, possible)
        return starts[size]

    def window(self, size: int) -> Tensor:
        """The mean `[D]` of the last `size` models. It equals `Window(size)` after this round."""
        return self._sum(self.round).mean_since(self._sum(self.begins(size)), self._like)

    def windows(self, sizes: Sequence[int] | None = None) -> Iterator[tuple[int, Tensor]]:
        """The windows of these sizes (None: of all), each with its size."""
        if sizes is None:
            sizes = self.sizes
        newest = self._sum(self.round)
        for size in sizes:
            before = self._sum(self.begins(size))
            yield size, newest.mean_since(before, self._like)

    def weighted(self, all_profiles: Sequence[Profile]) -> Iterator[tuple[Tensor, float]]:
        """The approximation `[D]` of the average of each profile `[n]`, and its error (see `profiles.misplaced`)."""
        return approximations(self.counts, self._sum, all_profiles, self._like)

    def judge(self, w: Tensor, error: float = 0.0) -> Judged:
        """The metrics of a model. Raises `ValueError` if there are no samples on which models are compared."""
        federation = self.run.federation
        scores = {score.split: score for score in federation.judge(w, self.round, "average", self._state)}
        for split in COMPARED:
            if split in scores:
                return Judged(w, scores[split], scores.get("held_out"), error)
        raise RunError(f"{self.run.folder} has no test set, held-out data or clients' tests to judge an average on")

    @cached_property
    def _state(self) -> State | None:
        """The state after the round, if clients keep a part of the model: they score with what it has of them."""
        if not self.run.federation.sharing.own_size:
            return None
        return self.run.state(self.round)

    def _sum(self, round: int) -> RunningSum:
        """The sum of the models up to a round; of none at round 0."""
        if round == 0:
            return RunningSum.empty(len(self._like))
        return sum_files.read(self.folder, round)


def best_window(averages: Afterwards) -> tuple[int, dict[int, Judged]]:
    """The size of the window that is best on held-out data, and all windows by their sizes.

    Among equal ones, the lowest loss decides. Raises `ValueError` if the run held out no data, since the choice must
    not use the test set.
    """
    federation = averages.run.federation
    requirement = "a choice needs a run with evaluation.held_out = 0.1, say: the test set is not for choosing"
    check(federation.evaluation.held_out > 0, "window", "auto", requirement)
    windows = {size: averages.judge(w) for size, w in averages.windows()}
    return best_of(windows, federation.goal.criterion), windows


def best_of(windows: Mapping[int, Judged], criterion: Criterion) -> int:
    """The size of the window that is best on held-out data; one whose value is NaN is the worst."""

    def error_and_loss(size: int) -> tuple[float, float]:
        held_out = windows[size].held_out
        assert held_out is not None
        error = criterion.error_of(held_out[criterion.name])
        if math.isnan(error):
            error = math.inf
        return error, held_out.loss

    return min(windows, key=error_and_loss)


def listed(numbers: Sequence[int]) -> str:
    """Numbers in a sentence. Of many evenly spaced numbers, only the first two and the last."""
    if len(numbers) > 4 and len(set(np.diff(numbers))) == 1:
        return f"{numbers[0]}, {numbers[1]}, ..., {numbers[-1]}"
    return ", ".join(map(str, numbers))
