"""Plain Markdown of every page beside its HTML, and `llms.txt`, which lists them."""

from __future__ import annotations

import re

TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
PARAGRAPH = re.compile(r"\n\n(?=[A-Z`*\[])(.+?)(?=\n\n|\n*$)", re.DOTALL)


def written(page: str) -> str:
    """A page without what only the site needs: the names of places in headings, the boxes of a notebook's outputs."""
    page = re.sub(r'\n*<div class="result" markdown>\n+(.*?)\n+</div>\n*', r"\n\n\1\n\n", page, flags=re.DOTALL)
    return re.sub(r" \{#[\w.-]+\}$", "", page, flags=re.MULTILINE)


def title(page: str) -> str:
    """The first heading of a page."""
    match = TITLE.search(page)
    return match[1] if match else ""


def about(page: str) -> str:
    """The first sentence of the first paragraph below the heading, without links."""
    match = PARAGRAPH.search(page[page.find("\n# ") + 1 :])
    if match is None:
        return ""
    paragraph = " ".join(match[1].split())
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
    return re.split(r"(?<=[.:]) (?=[A-Z`])", text)[0].rstrip(":")


def index(name: str, description: str, pages: dict[str, str]) -> str:
    """`llms.txt`: a line a page, with a link to its Markdown."""
    lines = [f"- [{title(page)}]({place}): {about(page)}" for place, page in pages.items()]
    return "\n".join([f"# {name}", "", f"> {description}", "", "## Pages", "", *lines, ""])
