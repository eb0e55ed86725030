"""Formulas, which pages have as TeX, as MathML: browsers draw it themselves."""

from __future__ import annotations

import re
from html import unescape
from typing import Literal

from latex2mathml.converter import convert

IN_HTML = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
"""A formula of arithmatex, in a line or in a paragraph of its own."""
IN_MARKDOWN = re.compile(r"^\$\$((?:.|\n(?!\n))+?)\$\$$", re.MULTILINE)
"""A paragraph between two `$$`. Formulas in a line are written as code in these pages."""


def in_html(html: str) -> str:
    """A page with its formulas as MathML."""
    display: dict[str, Literal["inline", "block"]] = {"span": "inline", "div": "block"}
    return IN_HTML.sub(lambda match: convert(unescape(match[2]), display=display[match[1]]), html)


def in_markdown(page: str) -> str:
    """A page of Markdown with its formulas as blocks of HTML, which hold MathML."""
    return IN_MARKDOWN.sub(lambda match: f"<div>{convert(match[1], display='block')}</div>", page)
