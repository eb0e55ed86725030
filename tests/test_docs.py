"""The pages name files that exist, and each method's row names the file that has it."""

from __future__ import annotations

import re
from pathlib import Path

import fedsash as fs
from fedsash.methods import METHODS
from support.places import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PLACES = [ROOT, ROOT / "src", ROOT / "src" / "fedsash", ROOT / "src" / "fedsash" / "lab", DOCS]
PATH = r"`((?:[\w-]+/)+[\w.-]*|[\w-]+\.py)`"
OF_A_RUN = ("state/", "models/", "analyses/", "trajectory/", "runs/", "pictures/", "tables/", "figures/", "sweeps/")
MADE_ON_THE_PAGE = (
    "tests/methods/test_fedvarp.py",
    "lengths.py",
    "mine.py",
    "check.py",
)


def missing(page: Path) -> set[str]:
    """The files that a page names and that are nowhere."""
    named = {
        name for name in re.findall(PATH, page.read_text()) if name.endswith((".py", ".toml")) and "NAME" not in name
    }
    own = {name for name in named if name.startswith(OF_A_RUN) or name in MADE_ON_THE_PAGE}
    return {name for name in named - own if not any((place / name).exists() for place in PLACES)}


def test_the_files_that_a_page_names_exist() -> None:
    assert len(PAGES) > 40
    wrong = [f"{page.relative_to(ROOT)} names {name}" for page in PAGES for name in sorted(missing(page))]
    assert not wrong, "\n".join(wrong)


def test_the_page_on_methods_names_the_file_of_each_method() -> None:
    page = (DOCS / "reference" / "methods.md").read_text()
    for method in METHODS.values():
        file = f"methods/{method.__module__.rpartition('.')[2]}.py"
        rows = [row for row in page.splitlines() if row.startswith("|") and f"`{file}`" in row]
        assert rows, f"{method.__name__} is in {file}, which docs/reference/methods.md does not name"
    assert fs.methods.FedSAM.__module__ == "fedsash.methods.fedsam"
