"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; `|` and line feeds in its cells do not end them."""
    lines = []
    for row in [heading, ["---"] * len(heading), *rows]:
        cells = [cell(text) for text in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(text: str) -> str:
    """A text as the content of a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """A text as code; empty if it is."""
    return f"`{text}`" if text else ""


def block(text: str) -> str:
    """Lines as a block of plain text."""
    return f"```text\n{text.rstrip()}\n```"
