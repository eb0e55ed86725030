"""Plain Markdown of every page beside its HTML, and `llms.txt`, which lists them."""

from __future__ import annotations

import json
import re
from pathlib import Path

TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
PARAGRAPH = re.compile(r"\n\n(?=[A-Z`*\[])(.+?)(?=\n\n|\n*$)", re.DOTALL)


def notebook(file: Path) -> str:
    """The cells of a notebook as Markdown, without their outputs."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if code else text for text, code in texts) + "\n"


def written(page: str) -> str:
    """A page without the names of places in its headings, which only the site needs."""
    return re.sub(r" \{#[\w-]+\}$", "", page, flags=re.MULTILINE)


def title(page: str) -> str:
    """The first heading of a page."""
    found = TITLE.search(page)
    return found[1] if found else ""


def about(page: str) -> str:
    """The first sentence of the first paragraph below the heading, without links."""
    found = PARAGRAPH.search(page[page.find("\n# ") + 1 :])
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(found[1].split())) if found else ""
    return re.split(r"(?<=[.:]) (?=[A-Z`])", text)[0].rstrip(":")


def index(name: str, description: str, pages: dict[str, str]) -> str:
    """`llms.txt`: a line a page, with a link to its Markdown."""
    lines = [f"- [{title(page)}]({place}): {about(page)}" for place, page in pages.items()]
    return "\n".join([f"# {name}", "", f"> {description}", "", "## Pages", "", *lines, ""])
