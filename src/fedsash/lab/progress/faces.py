"""Where progress is shown: in a log, on a terminal, in a notebook, or nowhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from html import escape
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from .. import terminal
from .moment import Moment

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

LINE = 10.0
"""The shortest time between two lines of a log, in seconds."""
REDRAW = 1.0
"""The time between two drawings in a notebook, in seconds."""
WIDEST_BAR = 40
SMALL_BAR = 6
"""The widths of the bars of rounds and of models, in columns."""
MOST_LINES = 4
"""At most so many lines of values stand below the bar."""
MOST_NOTES = 12
"""At most so many notes stand above the bar in a notebook: the last ones."""


class Face:
    """Where a moment is shown. This one shows nothing. After `start`, `changed` is called when the moment has changed,
    and `stop` at the end.
    """

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    def start(self) -> None:
        """Begin to show the moment."""

    def changed(self) -> None:
        """The moment has changed."""

    def say(self, line: str) -> None:
        """Show a note."""

    def stop(self) -> None:
        """Show the moment for the last time."""


class Log(Face):
    """A plain line, at most every ten seconds, and one at the end."""

    def start(self) -> None:
        self._last, self._unsaid = time.monotonic(), False

    def changed(self) -> None:
        now = time.monotonic()
        self._unsaid = True
        if now - self._last >= LINE:
            self._last = now
            self._line()

    def say(self, line: str) -> None:
        with suppress(OSError):
            terminal.say(line)

    def stop(self) -> None:
        if self._unsaid:
            self._line()

    def _line(self) -> None:
        self.say(self.moment.line())
        self._unsaid = False


class Bar(Face):
    """A bar, which a thread draws four times a second. Notes stand above it, and the values below."""

    def start(self) -> None:
        from rich.live import Live

        self._console = terminal.console()
        self._live = Live(
            get_renderable=lambda: bar(self.moment, self._console.width),
            console=self._console,
            redirect_stderr=terminal.is_terminal(sys.stderr),
        )
        self._live.start(refresh=True)

    def say(self, line: str) -> None:
        with suppress(OSError):
            self._console.print(terminal.wrapped(line, self._console.width), soft_wrap=True)

    def stop(self) -> None:
        with suppress(OSError):
            self._live.stop()


class Cell(Face):
    """The output of a notebook's cell, which a thread draws every second. The notebook keeps the last drawing."""

    def start(self) -> None:
        from IPython.display import display

        self._handle: Any = display(self._drawn(), raw=True, display_id=True)
        self._over = Event()
        self._thread = Thread(target=self._draw, daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        self.moment.notes.append(line)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._handle.update(self._drawn(), raw=True)

    def _draw(self) -> None:
        while not self._over.wait(REDRAW):
            self._handle.update(self._drawn(), raw=True)

    def _drawn(self) -> dict[str, str]:
        return {"text/html": html(self.moment), "text/plain": "\n".join([*_last(self.moment), self.moment.line()])}


def bar(moment: Moment, columns: int) -> Group:
    """The bar on one line, and below it the values, each with its whole name, on as many lines as they need.

    During an evaluation the models that are done have a bar of their own in the place of the pace.
    """
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Column, Table
    from rich.text import Text

    models: list[Any] = [moment.speed]
    taken = max(len(moment.speed), len("evaluating 10/10") + SMALL_BAR + 1)  # so that the bar keeps its width
    if moment.evaluated:
        done, every = moment.evaluated
        models = [Text("evaluating"), ProgressBar(every, done, SMALL_BAR), f"{done}/{every}"]
    room = columns - len(moment.count) - len(moment.time) - taken - 3
    rounds = [ProgressBar(moment.pace.rounds, moment.pace.round, min(room, WIDEST_BAR))] if room > 0 else []
    cells = [moment.count, *rounds, moment.time, *models]
    line = Table.grid(*(Column(no_wrap=True) for _ in cells), padding=(0, 1, 0, 0))
    line.add_row(*cells)
    return Group(line, *_lines(moment, columns))


def _lines(moment: Moment, columns: int) -> list[Text]:
    """The values on lines of at most so many columns. A line is broken between two values only."""
    from rich.text import Text

    lines: list[Text] = []
    for name, value in moment.values.items():
        pair = Text.assemble((terminal.visible(name), "cyan"), " ", value)
        if lines and len(lines[-1]) + 2 + len(pair) <= columns:
            lines[-1].append("  ").append_text(pair)
        else:
            lines.append(pair)
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    more = [Text("...")] if len(lines) > MOST_LINES else []
    return lines[: MOST_LINES - len(more)] + more


def html(moment: Moment) -> str:
    """The moment as HTML: the last notes, a bar, and the values."""
    notes = "".join(f"<div>{escape(line)}</div>" for line in _last(moment))
    pace = moment.pace
    parts = [moment.count, moment.time, moment.evaluation or moment.speed]
    values = "".join(
        f'<span style="margin-right:1em;white-space:nowrap">{escape(name)} <b>{escape(value)}</b></span>'
        for name, value in moment.values.items()
    )
    return (
        f'<div style="opacity:0.7;font-size:90%">{notes}</div>'
        f'<div><progress max="{max(pace.rounds, 1)}" value="{pace.round}" style="width:16em"></progress> '
        f"{'&ensp;'.join(filter(None, map(escape, parts)))}</div><div>{values}</div>"
    )


def _last(moment: Moment) -> list[str]:
    """The last notes, and how many came before them."""
    before = len(moment.notes) - MOST_NOTES
    return [f"{before} notes before", *moment.notes[-MOST_NOTES:]] if before > 0 else moment.notes


def face(moment: Moment, enabled: bool) -> Face:
    """Where a moment is shown: a notebook if Python runs in one, else a terminal that can draw, else a log."""
    if not enabled:
        return Face(moment)
    if _in_notebook():
        return Cell(moment)
    if terminal.is_terminal(sys.stdout) and not terminal.console().is_dumb_terminal:
        return Bar(moment)
    return Log(moment)


def _in_notebook() -> bool:
    """Whether Python runs in the kernel of a notebook."""
    shell: Any = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")
