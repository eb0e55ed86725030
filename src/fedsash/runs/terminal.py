"""The one way to the terminal: names and messages come from files, and are shown as text whatever they hold."""

from __future__ import annotations

import logging
import os
import re
import sys
import textwrap
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from ..settings.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


TRAILING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
"""The spaces with which rich fills the lines of a table, before the codes that end their style."""
READABLE = 100
"""The longest line of prose on a terminal, however wide it is."""
WIDE = 250
"""The longest line of a table where there is no terminal."""


def visible(text: str) -> str:
    """The text with every character that is not printable as Python writes it (`\\x1b`), except for the ends of lines.

    A terminal obeys control characters: they move the cursor, change its title, or hide what stands before them.
    """
    return "\n".join(map(printable, text.split("\n")))


def say(text: str = "") -> None:
    """Print a text."""
    print(visible(text), flush=True)


def wrapped(line: str, columns: int) -> str:
    """The line on lines of at most so many columns, broken between words only. All but the first are indented.

    A word that is longer, such as a path, is not broken, so that it can be copied.
    """
    return textwrap.fill(
        visible(line), max(columns, 20), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def say_prose(line: str) -> None:
    """Print a line that may be long: on a terminal on lines of at most `READABLE` columns.

    Who reads it in a file or through a pipe gets one line.
    """
    if is_terminal(sys.stdout):
        print(wrapped(line, min(READABLE, console().width)), flush=True)
    else:
        say(line)


def complain(line: str) -> None:
    """Print one line on standard error, if somebody can still read it."""
    with suppress(OSError):
        print(visible(line.replace("\n", " ")), file=sys.stderr, flush=True)


def show(thing: RenderableType) -> None:
    """Print a table or another thing of rich. One whose `min_width` is too wide is not cut: the terminal breaks it.

    Who reads it in a file or through a pipe gets lines as long as they are.
    """
    out = console()
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = WIDE
    out.width = max(out.width, getattr(thing, "min_width", None) or 0)
    with out.capture() as captured:
        out.print(thing, crop=False)
    print(TRAILING.sub(r"\1", captured.get()), end="", flush=True)


def console(**settings: Any) -> Console:
    """A console of rich that takes texts as they are: `[red]` in a name is no colour, and `:+1:` no picture."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **more: Any) -> Text:
            return super().render_str(visible(text), **more)

    return Plain(markup=False, emoji=False, highlight=False, **settings)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sees what is written to a stream; it is None where it was closed, as in a service."""
    return stream is not None and stream.isatty()


def replace_closed_streams() -> None:
    """Let standard input, output and errors that are closed lead nowhere.

    Otherwise the next file that is opened gets the number of one of them, and what a process prints goes into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def show_all_letters() -> None:
    """Show a letter that the terminal's encoding lacks as Python writes it (`\\xb1`)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):  # it may have become a file of another kind
                stream.reconfigure(errors="backslashreplace")


def show_warnings() -> None:
    """Show the warnings of the log as text, too, where nobody has set up a log of their own."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Visible())


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))
