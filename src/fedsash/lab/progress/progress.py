"""The progress of a run: what it has done, how long it takes, and each model's last value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType

from .faces import Face, Log, face
from .moment import Moment
from .pace import Pace

Each = Callable[[Sequence[str]], Iterator[str]]
"""Passes the names of models on, one after the other, and counts them."""


def never(round: int) -> int:
    """No evaluations follow."""
    return 0


class Progress:
    """Shows the round, the time taken and left, the pace and each model's last value while a `with` block runs.

    In a notebook and on a terminal this is a bar. Otherwise it is a plain line, at most every ten seconds, and one at
    the end. It shows nothing unless `enabled`, and nothing more once its terminal is closed. `evaluations(round)` is
    the number of evaluations that follow after `round` finished rounds. The first `update` gives the round at which the
    run starts.
    """

    def __init__(self, rounds: int, enabled: bool = True, evaluations: Callable[[int], int] = never) -> None:
        self._pace = Pace(rounds, evaluations)
        self._moment = Moment(self._pace)
        self._enabled = enabled
        self._face: Face | None = None

    def __enter__(self) -> Progress:
        self._pace.begin()
        self._face = face(self._moment, self._enabled)
        self._face.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._face is not None:
            self._face.stop()
            self._face = None

    def update(self, round: int, values: Mapping[str, str] | None = None) -> None:
        """`round` rounds are finished. `values`, as text by name, are shown until newer ones arrive."""
        self._pace.reach(round)
        if values is not None:
            self._moment.values = values
        self._changed()

    @contextmanager
    def evaluation(self) -> Iterator[Each]:
        """An evaluation, for as long as the `with` block runs. It yields a function that counts models."""
        self._pace.begin_evaluation()
        try:
            yield self._each
        finally:
            self._moment.evaluated = None
            self._pace.end_evaluation()

    def say(self, line: str) -> None:
        """Show a line. It appears above a bar."""
        if self._face is not None:
            self._face.say(line)
        elif self._enabled:
            Log(self._moment).say(line)

    def _each(self, names: Sequence[str]) -> Iterator[str]:
        for done, name in enumerate(names):
            self._moment.evaluated = done, len(names)
            self._pace.evaluated(done / len(names))
            self._changed()
            yield name

    def _changed(self) -> None:
        if self._face is not None:
            self._face.changed()
