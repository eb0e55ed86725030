"""The progress of a run: rich's bar on a terminal or in a notebook, and otherwise a plain line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

LINE = 10.0
"""The shortest time between two lines of a log, in seconds."""
WIDEST_BAR = 40
"""The width of the bar, in columns; less where the terminal is narrow."""
MOST_LINES = 4
"""At most so many lines of values stand below the bar."""

Each = Callable[[Sequence[str]], Iterator[str]]
"""Passes the names of models on, one after the other, and counts them."""


class Progress:
    """Shows the round, the time taken and left, the pace and each model's last value while a `with` block runs.

    On a terminal, and in a notebook that has ipywidgets, this is a bar of rich. Otherwise, and without rich, it is a
    plain line, at most every ten seconds, and one at the end. It shows nothing unless `enabled`, and nothing more once
    its terminal is closed. The first `update` gives the round at which the run starts.
    """

    def __init__(self, rounds: int, enabled: bool = True) -> None:
        self.rounds = rounds
        self.round = 0
        self.values: Mapping[str, str] = {}
        self.evaluating = ""
        self._enabled = enabled
        self._first: int | None = None
        self._start: tuple[float, int] | None = None
        self._began = self._reached = time.monotonic()
        self._view: _Lines | _Bar | None = None

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self._enabled:
            self._view = _Bar(self) if _draws() else _Lines(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._view is not None:
            self._view.stop()
            self._view = None

    def update(self, round: int, values: Mapping[str, str] | None = None) -> None:
        """`round` rounds are finished. `values`, as text by name, are shown until newer ones arrive."""
        self.round = round
        self._reached = time.monotonic()
        if self._first is None:
            self._first = round
        if self._start is None and round > self._first:  # the first round waited for the choice of the engine
            self._start = self._reached, round
        if values is not None:
            self.values = values
        self._show()

    @contextmanager
    def evaluation(self) -> Iterator[Each]:
        """An evaluation, for as long as the `with` block runs. It yields a function that counts models."""
        try:
            yield self._each
        finally:
            self.evaluating = ""

    def say(self, line: str) -> None:
        """Show a line. It appears above a bar."""
        if self._view is not None:
            self._view.say(line)
        elif self._enabled:
            _say(line)

    @property
    def taken(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def seconds_per_round(self) -> float | None:
        """The seconds of a round with its evaluations, from the first finished round on. None until a second one is."""
        if self._start is None or self.round == self._start[1]:
            return None
        began, first = self._start
        seconds = max(self._reached - began, 1e-9)
        return seconds / (self.round - first)

    @property
    def time(self) -> str:
        """The time taken, and the time left as soon as a pace is known: `1:20, 4:00 left`."""
        taken = _minutes(self.taken)
        seconds = self.seconds_per_round
        if seconds is None or self.round >= self.rounds:
            return taken
        left = _minutes(seconds * (self.rounds - self.round))
        return f"{taken}, {left} left"

    @property
    def pace(self) -> str:
        """The rounds a second, or the seconds a round; empty as long as they are not known."""
        seconds = self.seconds_per_round
        if seconds is None:
            return ""
        if seconds > 1:
            return f"{seconds:.1f} s each"
        digits = 1 if seconds > 0.1 else 0
        return f"{1 / seconds:.{digits}f}/s"

    @property
    def line(self) -> str:
        """All of it on one line."""
        count = f"round {self.round:>{len(str(self.rounds))}}/{self.rounds}"
        values = [f"{name} {value}" for name, value in self.values.items()]
        return "  ".join(filter(None, [count, self.time, self.pace, self.evaluating, *values]))

    def _each(self, names: Sequence[str]) -> Iterator[str]:
        for done, name in enumerate(names):
            self.evaluating = f"evaluating {done}/{len(names)}"
            self._show()
            yield name

    def _show(self) -> None:
        if self._view is not None:
            self._view.show()


class _Lines:
    """A plain line, at most every ten seconds, and one at the end."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last = time.monotonic()
        self._unsaid = False

    def show(self) -> None:
        now = time.monotonic()
        self._unsaid = True
        if now - self._last >= LINE:
            self._last = now
            self._line()

    def say(self, line: str) -> None:
        _say(line)

    def stop(self) -> None:
        if self._unsaid:
            self._line()

    def _line(self) -> None:
        _say(self._progress.line)
        self._unsaid = False


class _Bar:
    """A bar of rich, with the values below it. Lines stand above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._console = terminal.console()
        self._rich = _rich(progress, self._console)
        self._task = self._rich.add_task("", total=progress.rounds, note="")
        self._rich.start()

    def show(self) -> None:
        progress = self._progress
        self._rich.update(self._task, completed=progress.round, note=progress.evaluating or progress.pace)

    def say(self, line: str) -> None:
        with suppress(OSError):
            self._console.print(terminal.wrapped(line, self._console.width), soft_wrap=True)

    def stop(self) -> None:
        with suppress(OSError):
            self._rich.stop()


def _rich(shown: Progress, console: Console) -> RichProgress:
    """The bar of rich for a progress."""
    from rich.console import RenderableType
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class Time(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(shown.time, "progress.elapsed")

    class Bar(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            yield from _below(shown.values, console.width)

    whole = Column(no_wrap=True)
    note = TextColumn("{task.fields[note]}")
    columns = [MofNCompleteColumn(), Time(), note]
    if console.width >= 60:
        columns.insert(1, BarColumn(min(console.width - 50, WIDEST_BAR), table_column=whole))
    return Bar(*columns, console=console, redirect_stderr=terminal.is_terminal(sys.stderr))


def _below(values: Mapping[str, str], columns: int) -> list[Any]:
    """The values on lines of at most so many columns. A line is broken between two values only."""
    from rich.text import Text

    lines: list[Text] = []
    for name, value in values.items():
        pair = Text.assemble((terminal.visible(name), "cyan"), " ", value)
        if lines and len(lines[-1]) + 2 + len(pair) <= columns:
            lines[-1].append("  ").append_text(pair)
        else:
            lines.append(pair)
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[: MOST_LINES - 1], Text("...")]


def _draws() -> bool:
    """Whether a bar can be drawn: on a terminal, or in a notebook with ipywidgets, by rich."""
    if find_spec("rich") is None:
        return False
    console = terminal.console()
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return terminal.is_terminal(sys.stdout) and not console.is_dumb_terminal


def _say(line: str) -> None:
    with suppress(OSError):
        terminal.say(line)


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
