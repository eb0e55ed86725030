"""The whole site as a folder of Markdown, for any generator: `python -m site_build.folder OUT`.

All that the site's hooks make is inside: generated pages, the Python reference written out, executed notebooks, links
between pages, formulas as MathML, and `llms.txt`. Headings keep the names of their places (`{#place}`), to which pages
link.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from site_build import contents, formulas, plain

Content = str | bytes | Path


def write(out: Path) -> None:
    """Write the site's files into the new folder `out`. Raises `FileExistsError` if it is there already."""
    out.mkdir(parents=True)
    files: dict[str, Content] = {**from_docs(), **contents.elsewhere(), **contents.generated(), **contents.tutorials()}
    for place, content in written(files).items():
        file = out / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def from_docs() -> dict[str, Path]:
    """The files of docs/, by their places."""
    docs = contents.ROOT / "docs"
    return {file.relative_to(docs).as_posix(): file for file in sorted(docs.rglob("*")) if file.is_file()}


def written(files: dict[str, Content]) -> dict[str, bytes]:
    """What is written of these files of the site, by their places, and `llms.txt`."""
    result = {}
    for place, content in files.items():
        if isinstance(content, Path):
            content = content.read_bytes()
        if isinstance(content, str):
            content = content.encode()
        if place.endswith(".md"):
            page = contents.complete(contents.with_links(content.decode(), place), place)
            content = formulas.in_markdown(page).encode()
        result[place] = content
    result["llms.txt"] = _index(result).encode()
    return result


def _index(files: dict[str, bytes]) -> str:
    """`llms.txt`, with the pages in the order of the navigation."""
    settings = yaml.safe_load((contents.ROOT / "mkdocs.yml").read_text())
    pages = {place: plain.written(files[place].decode()) for place in places(settings["nav"]) if place in files}
    return plain.index(settings["site_name"], settings["site_description"], pages)


def places(nav: Any) -> list[str]:
    """The places of the pages of a navigation, in its order: a place, a list, or a table with titles as its keys."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [place for part in parts for place in places(part)]


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]))
    except FileExistsError as error:
        sys.exit(f"{error.filename} is there already: name a new folder")
    except IndexError:
        sys.exit("usage: python -m site_build.folder OUT")
