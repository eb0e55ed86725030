"""The site: links, plain Markdown, and a strict build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from site_build import plain
from site_build.links import relinked

from support.places import ROOT


@pytest.mark.parametrize(
    "source, link, expected",
    [
        ("docs/how-to/data.md", "tasks.md#metrics", "tasks.md#metrics"),
        ("docs/how-to/data.md", "../../examples/loops/tracker.py", "../examples/loops/tracker.py"),
        ("docs/how-to/data.md", "../../examples/tasks", "../examples/README.md"),
        ("docs/how-to/data.md", "../../examples/loops/whole.py", "../concepts/whole.md"),
        ("docs/how-to/data.md", "../../README.md", "../index.md"),
        ("docs/glossary.md", "../CHANGELOG.md", "changelog.md"),
        ("CONTRIBUTING.md", "docs/design/architecture.md#one-round", "design/architecture.md#one-round"),
        ("examples/flower/digits/README.md", "../../../docs/how-to/data.md", "../../../how-to/data.md"),
        ("docs/how-to/data.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/how-to/data.md", "../tutorials/own-data.ipynb", "../tutorials/own-data.md"),
        ("docs/how-to/data.md", "#here", "#here"),
    ],
)
def test_a_link_of_the_repository_leads_to_the_same_page_of_the_site(source: str, link: str, expected: str) -> None:
    assert relinked(f"See [it]({link}).", source) == f"See [it]({expected})."


def test_the_index_has_a_line_with_title_and_first_sentence_of_each_page() -> None:
    page = "# A page\n\n![picture](x.png)\n\nIt says `this` of [that](that.md). And more.\n\n## Below\n"
    assert plain.index("site", "About it", {"how-to/a.md": page}) == (
        "# site\n\n> About it\n\n## Pages\n\n- [A page](how-to/a.md): It says `this` of that.\n"
    )


def test_a_plain_page_has_no_names_of_places_in_its_headings() -> None:
    assert plain.written("## `[local]` {#local}\n\nA `{#place}`.\n") == "## `[local]`\n\nA `{#place}`.\n"
    assert plain.written("## fedsash.run {#fedsash.run}\n") == "## fedsash.run\n"


@pytest.mark.slow
def test_the_site_builds_strictly_and_asks_nobody_else_for_anything(tmp_path: Path) -> None:
    pytest.importorskip("nbconvert")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-3000:]
    pages = [page for page in tmp_path.rglob("*.html") if page.name != "404.html"]
    index = (tmp_path / "llms.txt").read_text()
    for page in pages:
        plain_page = (
            page.with_suffix(".md") if (own := page.with_suffix(".md")).exists() else own.with_name("README.md")
        )
        assert plain_page.read_text().strip(), page
        assert f"({plain_page.relative_to(tmp_path)})" in index
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?:', page.read_text()), page
