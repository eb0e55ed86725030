"""The site as a folder of Markdown."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
from markdown import markdown
from site_build import contents, folder, formulas

MATH = re.compile(r"<math.*?</math>", re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)[^)]*\)")


@pytest.fixture(scope="module")
def written() -> dict[str, bytes]:
    """All but the notebooks, which take minutes."""
    return folder.written({**folder.from_docs(), **contents.elsewhere(), **contents.generated()})


@pytest.mark.full
def test_each_link_leads_to_a_file_and_each_name_of_python_to_its_heading(written: dict[str, bytes]) -> None:
    broken = []
    for place, content in written.items():
        if not place.endswith(".md"):
            continue
        for target, anchor in LINK.findall(content.decode()):
            there = place
            if target:
                there = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
            page = written.get(there)
            if page is None and not Path(contents.ROOT / "docs" / there).with_suffix(".ipynb").exists():
                broken.append(f"{place}: {target}")
            elif anchor.startswith("fedsash.") and f"{{#{anchor}}}".encode() not in (page or b""):
                broken.append(f"{place}: {target}#{anchor}")
    assert broken == []


@pytest.mark.full
def test_each_page_of_the_navigation_is_there_with_the_reference_written_out(written: dict[str, bytes]) -> None:
    index = written["llms.txt"].decode()
    assert index.index("(index.md)") < index.index("(how-to/data.md)") < index.index("(reference/python/daily.md)")
    assert "(concepts/whole.md)" in index and "(changelog.md)" in index
    daily = written["reference/python/daily.md"].decode()
    assert "## fedsash.Tracker {#fedsash.Tracker}" in daily and ":::" not in daily


def test_each_formula_is_the_mathml_that_the_site_has() -> None:
    """Rendered as generators of the site do, whose Markdown is that of `markdown` with these extensions."""
    extensions = ["attr_list", "md_in_html", "tables", "pymdownx.arithmatex", "pymdownx.superfences"]
    settings = {"pymdownx.arithmatex": {"generic": True}}
    pages = {
        place: file for place, file in folder.from_docs().items() if file.suffix == ".md" and "$$" in file.read_text()
    }
    assert len(pages) >= 5
    for place, content in folder.written({**pages}).items():
        if place == "llms.txt":
            continue
        on_site = markdown(pages[place].read_text(), extensions=extensions, extension_configs=settings)
        found = markdown(content.decode(), extensions=extensions, extension_configs=settings)
        assert MATH.findall(found) == MATH.findall(formulas.in_html(on_site)) != []
        assert "arithmatex" not in found


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        folder.write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_navigation_has_its_places_in_its_order() -> None:
    assert folder.places([{"Start": ["a.md", {"More": ["b.md"]}]}, "c.md"]) == ["a.md", "b.md", "c.md"]
