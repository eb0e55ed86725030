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
    """An element with its content. An element of `EMPTY` has no content and no end tag.

    Attributes are written `class_="x"`, `data_figure=3`. Those that are None or False are left out.
    """
    start = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            start += _attribute(key.strip("_").replace("_", "-"), value)
    if name in EMPTY:
        return Html(f"<{start}>")
    return Html(f"<{start}>{join(inside)}</{name}>")


def _attribute(name: str, value: str | int) -> str:
    """An attribute with the space before it; True gives its name alone."""
    if value is True:
        return f" {name}"
    return f' {name}="{escape(str(value))}"'


def join(parts: Iterable[str | None]) -> Html:
    """The parts one after another. Text is escaped, markup is not, and None is left out."""
    escaped: list[str] = []
    for part in parts:
        if isinstance(part, Html):
            escaped.append(part)
        elif part is not None:
            escaped.append(escape(part))
    return Html("".join(escaped))


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

    bodies = []
    for name, rows in groups:
        title = None
        if name:
            title = tag("tr", tag("th", name, scope="rowgroup", colspan=len(heads)), class_="group")
        bodies.append(tag("tbody", title, *(_row(row, texts) for row in rows)))
    columns = []
    for column, head in enumerate(heads):
        columns.append(tag("th", head, scope="col", class_=_column_class(column, texts)))
    inner = tag("table", tag("thead", tag("tr", *columns)), *bodies, aria_label=caption)
    hint = tag("span", SCROLLS, class_="hint", hidden=True)
    box = tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return tag("figure", tag("figcaption", caption, hint), box)


def _row(cells: Sequence[str], texts: int) -> Html:
    """A row of a table whose first `texts` columns are words."""
    elements = [tag("th", cells[0], scope="row")]
    for column, cell in enumerate(cells[1:], start=1):
        css_class = _column_class(column, texts)
        if css_class is None and len(cell) > LONG:
            css_class = "long"
        elements.append(tag("td", cell, class_=css_class))
    return tag("tr", *elements)


def _column_class(column: int, texts: int) -> str | None:
    """The class of the cells in a column: that of numbers, after the first `texts` columns."""
    if column < texts:
        return None
    return "number"


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
    if not lines:
        return None
    return tag("ul", *(tag("li", line) for line in lines), class_="notes")
