"""What the site has besides the files of docs/, and the Markdown of its pages with the links of the site."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hatch_build import addressed

from site_build import claims, commands, examples, experiment_file, notebooks, python_pages, whole
from site_build.links import relinked

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages that lie at the top of the repository."""
ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["custom"][
    "address"
]
"""Where the project lies; empty until a person has said it."""


def generated() -> dict[str, str]:
    """The pages that are made here, by their places."""
    return {
        "reference/experiment-file.md": experiment_file.page(),
        "reference/commands.md": commands.page(),
        "concepts/whole.md": whole.page(ROOT),
        **python_pages.pages(),
    }


def elsewhere() -> dict[str, Path]:
    """The files of the repository that are on the site and not in docs/, by their places there."""
    files = {place: ROOT / source for place, source in FROM_ROOT.items()}
    for file in examples.files(ROOT):
        files[file.as_posix()] = ROOT / file
    return files


def tutorials() -> dict[str, str | bytes]:
    """What becomes of the notebooks in docs/: pages and pictures, by their places. All cells are executed."""
    contents: dict[str, str | bytes] = {}
    docs = ROOT / "docs"
    for file in sorted(docs.glob("tutorials/*.ipynb")):
        contents.update(notebooks.pages(file, file.relative_to(docs)))
    return contents


def with_links(markdown: str, place: str) -> str:
    """The Markdown of the page at `place`, with the links of the site and the numbers of papers' claims."""
    source = FROM_ROOT.get(place) or (place if place.startswith("examples/") else f"docs/{place}")
    return relinked(addressed(claims.with_claims(markdown), ADDRESS), source)


def complete(markdown: str, place: str) -> str:
    """What `with_links` gives of a page, with the signatures and docstrings of the Python reference."""
    if place.startswith(python_pages.FOLDER):
        return python_pages.written_out(markdown)
    return markdown
