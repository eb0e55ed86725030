"""The progress of a run: a bar on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from . import terminal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

SAMPLE = 0.5
"""The shortest time between two samples of the pace, in seconds. The pace is measured over the last 60 samples."""
LINE = 10.0
"""The shortest time between two lines if there is no terminal, in seconds."""
BAR = 6
"""The bar keeps this many columns; the names of models are shortened first."""
WIDEST_BAR = 40


class Progress:
    """Shows the round, the time taken and left, the pace and each model's last value while a `with` block runs.

    On a terminal this is a bar, which a thread draws four times a second. Otherwise it is a plain line, at most every
    ten seconds, and one at the end. It shows nothing unless `enabled`, and nothing more once its terminal is closed.
    The first `update` gives the round at which the run starts.
    """

    def __init__(self, rounds: int, enabled: bool = True) -> None:
        self._rounds, self._enabled = rounds, enabled
        self._round = 0
        self._values: Mapping[str, str] = {}
        self._samples: deque[tuple[float, int]] = deque(maxlen=60)
        self._live: Live | None = None
        self._began = self._last_line = time.monotonic()
        self._last_sample = -SAMPLE
        self._unsaid = False

    def __enter__(self) -> Progress:
        self._began = self._last_line = time.monotonic()
        if self._enabled and sys.stdout.isatty():
            self._start_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
            self._live = None
        elif self._unsaid:
            self._say_line()

    def update(self, round: int, values: Mapping[str, str] | None = None) -> None:
        """`round` rounds are finished. `values`, as text by model, are shown until newer ones arrive."""
        self._round = round
        if values:
            self._values = values
        now = time.monotonic()
        self._unsaid = True
        if now - self._last_sample >= SAMPLE:
            self._last_sample = now
            self._samples.append((now, round))
            if self._live is None and now - self._last_line >= LINE:
                self._last_line = now
                self._say_line()

    def say(self, line: str) -> None:
        """Print a line. On a terminal it appears above the bar."""
        with suppress(OSError):
            if self._live is not None:
                self._live.console.print(line, soft_wrap=True)
            elif self._enabled:
                terminal.say(line)

    def _start_bar(self) -> None:
        from rich.live import Live

        console = terminal.console()
        if not console.is_dumb_terminal:
            self._live = Live(
                get_renderable=lambda: self._bar(console.width),
                console=console,
                redirect_stderr=sys.stderr.isatty(),
            )
            self._live.start(refresh=True)

    def _say_line(self) -> None:
        values = (f"{name} {value}" for name, value in self._values.items())
        self.say("  ".join((f"round {self._count()}", *self._clock(), *values)))
        self._unsaid = False

    def _bar(self, columns: int) -> Table:
        """The bar, on one line. On a narrow terminal the names are shortened first, then the bar."""
        from rich.progress_bar import ProgressBar
        from rich.table import Column, Table
        from rich.text import Text

        count, clock, values = self._count(), self._clock(), self._values
        room = columns - sum(len(word) + 1 for word in (count, *clock))
        names = shorten(list(values), room - BAR - 1 - sum(len(value) + 3 for value in values.values()))
        text = Text("  ").join(
            Text.assemble((name, "cyan"), " ", value) for name, value in zip(names, values.values(), strict=True)
        )
        text.truncate(room, overflow="ellipsis")
        width = min(room - len(text) - 1, WIDEST_BAR)
        bar = [ProgressBar(self._rounds, self._round, width)] if width > 0 else []
        cells: list[RenderableType] = [count, *bar, *clock, text]
        line = Table.grid(*(Column(no_wrap=True) for _ in cells), padding=(0, 1, 0, 0))
        line.add_row(*cells)
        return line

    def _count(self) -> str:
        return f"{self._round:>{len(str(self._rounds))}}/{self._rounds}"

    def _clock(self) -> tuple[str, ...]:
        """The time taken, then the time left and the pace as soon as a pace is known."""
        now = time.monotonic()
        taken = _time(now - self._began)
        begin, first = self._samples[0] if self._samples else (now, self._round)
        if self._round <= first:
            return (taken,)
        pace = (self._round - first) / (now - begin)
        speed = f"{pace:.{1 if pace < 10 else 0}f}/s" if pace >= 1 else f"{1 / pace:.1f} s each"
        left = f"{taken}, {_time((self._rounds - self._round) / pace)} left" if self._round < self._rounds else taken
        return left, speed


def shorten(names: Sequence[str], room: int) -> list[str]:
    """The names shortened, the longest first, until they fit into `room` columns or each has one letter.

    Digits at the end of a name are kept, because they distinguish names. The letters before them are cut first:
    `window20` becomes `w20`.
    """
    stems = [name.rstrip("0123456789") for name in names]
    ends = [name[len(stem) :] for name, stem in zip(names, stems, strict=True)]
    while sum(map(len, stems + ends)) > room and any(len(stem) > 1 for stem in stems):
        longest = max(range(len(stems)), key=lambda i: len(stems[i]) * (3 if ends[i] and len(stems[i]) > 1 else 1))
        stems[longest] = stems[longest][:-1].rstrip(" -_=.") or stems[longest][:1]
    return [stem + end for stem, end in zip(stems, ends, strict=True)]


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
