"""How long a run has taken, and how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import fmean

SAMPLE = 0.5
"""The shortest time between two samples of the pace, in seconds. The pace is measured over the last 60 samples."""


class Pace:
    """The time that a run has taken and has left. Rounds and evaluations have a pace each.

        left = seconds a round * rounds left + seconds an evaluation * evaluations left

    What the round and the evaluation under way have taken so far is subtracted, but never more than they are expected
    to take. So the time left does not grow while they last. `evaluations(round)` is the number of evaluations that
    follow after `round` finished rounds. Time is read from `clock`, in seconds.

    The first round may take much longer than the others, since processes start and engines warm up. So it gives the
    pace only until others do.
    """

    def __init__(
        self, rounds: int, evaluations: Callable[[int], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rounds, self.round = rounds, 0
        self._evaluations, self._clock = evaluations, clock
        self._began = self._last = clock()
        self._start: tuple[float, int] | None = None
        self._samples: deque[tuple[float, int]] = deque(maxlen=60)
        self._evaluated: deque[float] = deque(maxlen=5)
        self._evaluating: float | None = None
        self._guess: float | None = None
        self._scoring = self._since = 0.0
        """Seconds of all finished evaluations, and of those since the last round was reported."""

    def begin(self) -> None:
        """The time that is taken begins now."""
        self._began = self._last = self._clock()

    def reach(self, round: int) -> None:
        """`round` rounds are finished. The first call gives the round at which the run starts.

        As long as it is called with that round, training has not begun.
        """
        self.round, self._last, self._since = round, self._clock() - self._scoring, 0.0
        if self._start is None or round == self._start[1]:
            self._start = self._last, round
        elif not self._samples or (self._last - self._samples[-1][0] >= SAMPLE and round > self._samples[-1][1]):
            self._samples.append((self._last, round))

    def begin_evaluation(self) -> None:
        """An evaluation begins."""
        self._evaluating = self._clock()

    def evaluated(self, share: float) -> None:
        """This share of the models has been evaluated."""
        if share:
            self._guess = self._under_way(self._clock()) / share

    def end_evaluation(self) -> None:
        """The evaluation has ended."""
        took = self._under_way(self._clock())
        self._evaluating = None
        self._evaluated.append(took)
        self._scoring += took
        self._since += took

    @property
    def taken(self) -> float:
        """The seconds since the beginning."""
        return self._clock() - self._began

    @property
    def each(self) -> float | None:
        """The seconds that a round takes, without its evaluation. None as long as this is not known."""
        if self._start is None or self.round == self._start[1]:
            return None
        began, first = self._samples[0] if len(self._samples) > 1 else self._start
        return max(self._last - began, 1e-9) / (self.round - first)

    def left(self) -> tuple[float, bool] | None:
        """The seconds that are left, and whether they count evaluations. None as long as the pace is not known.

        Before the first evaluation nobody knows how long one takes. During it that follows from the models that are
        done. If even the first round is not over then, its training is, and gives the pace.
        """
        now = self._clock()
        scoring, evaluations = self._under_way(now), self._evaluations(self.round)
        training = now - self._scoring - scoring - self._last
        each = self.each or (training if self._guess else None)
        if each is None:
            return None
        rounds = each * (self.rounds - self.round) - min(training, each)
        one = fmean(self._evaluated) if self._evaluated else self._guess
        if one is None or not evaluations:
            return max(rounds, 0.0), not evaluations
        return max(rounds, 0.0) + max(one * evaluations - min(self._since + scoring, one), 0.0), True

    def _under_way(self, now: float) -> float:
        """The seconds that the evaluation under way has taken so far."""
        return 0.0 if self._evaluating is None else now - self._evaluating
