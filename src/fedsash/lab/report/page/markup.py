"""HTML from small functions: every text is escaped unless it is markup already.

There is no template language: a section is written next to its numbers, and escaping cannot be forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

EMPTY = ("meta", "link", "br", "hr", "input")
MISSING = "\N{EN DASH}"
LONG = 40
"""Words in a table that are longer than this may be broken into lines."""
SCROLLS = "More columns: scroll to the side \N{RIGHTWARDS ARROW}"


class Html(str):
    """Text that is markup."""


def tag(name: str, /, *inside: str | None, **attributes: str | int | bool | None) -> Html:
    """An element. Attributes are written `class_="x"`, `data_figure=3`. Those that are None or False are left out."""
    pairs = [(key.strip("_").replace("_", "-"), value) for key, value in attributes.items()]
    given = [(key, value) for key, value in pairs if value is not None and value is not False]
    opened = name + "".join(f" {key}" if value is True else f' {key}="{escape(str(value))}"' for key, value in given)
    return Html(f"<{opened}>" if name in EMPTY else f"<{opened}>{join(inside)}</{name}>")


def join(parts: Iterable[str | None]) -> Html:
    """The parts one after another. Text is escaped, markup is not, and None is left out."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts if part is not None))


def data(id: str, value: Any) -> Html:
    """`value` as JSON that a script can read; it cannot close the element that holds it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{escape(id)}">{text}</script>')


def table(
    caption: str, heads: Sequence[str], groups: Iterable[tuple[str | None, Sequence[Sequence[str]]]], *, texts: int = 1
) -> Html:
    """A table below its caption, in a box that scrolls by itself and says so.

    Each group of rows may have a name; a row's first cell is its head.
    The first `texts` columns are words, the others numbers.
    """

    def kind(column: int) -> str | None:
        return "number" if column >= texts else None

    def long(cell: str) -> str | None:
        return "long" if len(cell) > LONG else None

    def row(cells: Sequence[str]) -> Html:
        head = tag("th", cells[0], scope="row")
        return tag("tr", head, *(tag("td", cell, class_=kind(i) or long(cell)) for i, cell in enumerate(cells[1:], 1)))

    def group(name: str | None, rows: Sequence[Sequence[str]]) -> Html:
        title = tag("tr", tag("th", name, scope="rowgroup", colspan=len(heads)), class_="group") if name else None
        return tag("tbody", title, *map(row, rows))

    columns = tag("tr", *(tag("th", head, scope="col", class_=kind(i)) for i, head in enumerate(heads)))
    bodies = [group(name, rows) for name, rows in groups]
    inner = tag("table", tag("thead", columns), *bodies, aria_label=caption)
    told = tag("figcaption", caption, tag("span", SCROLLS, class_="hint", hidden=True))
    return tag("figure", told, tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption))


def folded(title: str, *inside: str | None, opened: bool = False) -> Html:
    """A section that the reader can unfold."""
    return tag("details", tag("summary", title), *inside, open=opened)


def code(text: str) -> Html:
    """A command, or a file's text."""
    return tag("pre", tag("code", text), tabindex=0)


def definitions(pairs: Iterable[tuple[str, str]]) -> Html:
    """A list of names with their values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def notes(lines: Sequence[str]) -> Html | None:
    """A box with important lines. None if there are no lines."""
    return tag("ul", *(tag("li", line) for line in lines), class_="notes") if lines else None
