"""Links between pages. They are written for the repository, and the site has its pages in other places."""

from __future__ import annotations

import posixpath
import re

LINK = re.compile(r"(\]\()([^)\s#]+)([^)\s]*\))")
MOVED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "examples/loops/whole.py": "concepts/whole.md",
}


def on_site(place: str) -> str:
    """The place on the site of a file of the repository; of a folder of examples, the page that lists them."""
    if place.startswith("examples") and not posixpath.splitext(place)[1]:
        return "examples/README.md"
    if place.endswith(".ipynb"):
        place = place.removesuffix(".ipynb") + ".md"
    return MOVED.get(place, place.removeprefix("docs/"))


def relinked(page: str, source: str) -> str:
    """A page, which is the file `source` of the repository, with its relative links as they are on the site."""
    folder = posixpath.dirname(source)
    here = posixpath.dirname(on_site(source))

    def link(match: re.Match[str]) -> str:
        begin, target, rest = match.groups()
        if ":" in target or target.startswith("/"):
            return match[0]
        place = on_site(posixpath.normpath(posixpath.join(folder, target)))
        return f"{begin}{posixpath.relpath(place, here or '.')}{rest}"

    return LINK.sub(link, page)
