"""What is shown of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .pace import Pace


@dataclass
class Moment:
    """What is shown of a run while it goes on: rounds, time, the evaluation under way, and values by name.

    `evaluated` has the number of models that are done, and of all, during an evaluation. `notes` are lines so far.
    """

    pace: Pace
    values: Mapping[str, str] = field(default_factory=dict)
    evaluated: tuple[int, int] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def count(self) -> str:
        """The number of finished rounds, and of all."""
        return f"{self.pace.round:>{len(str(self.pace.rounds))}}/{self.pace.rounds}"

    @property
    def time(self) -> str:
        """The time taken, and the time left as soon as a pace is known: `1:20, 4:00 left`.

        It is `over 4:00 left` if nobody knows yet how long an evaluation takes.
        """
        taken, left = _time(self.pace.taken), self.pace.left()
        if left is None or self.pace.round >= self.pace.rounds:
            return taken
        return f"{taken}, {'' if left[1] else 'over '}{_time(left[0])} left"

    @property
    def speed(self) -> str:
        """The pace of the rounds, without evaluations; empty as long as it is not known."""
        each = self.pace.each
        if each is None:
            return ""
        return f"{1 / each:.{1 if each > 0.1 else 0}f}/s" if each <= 1 else f"{each:.1f} s each"

    @property
    def evaluation(self) -> str:
        """The models that are done, and all; empty if none is evaluated at the moment."""
        return "evaluating {}/{}".format(*self.evaluated) if self.evaluated else ""

    def line(self) -> str:
        """All of it on one line."""
        parts = [f"round {self.count}", self.time, self.speed, self.evaluation]
        return "  ".join(filter(None, [*parts, *(f"{name} {value}" for name, value in self.values.items())]))


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
