"""Whoever installs fedsash: its version, and the extras that messages and pages name."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from fedsash.lab.cli import LIBRARIES
from support.places import DOCS, ROOT
from support.release import EXTRAS, PROJECT

NAMED = re.compile(r"fedsash\[([\w, -]+)\]")
FOR_THE_PROJECT = {"dev", "docs"}


def _texts() -> dict[str, str]:
    files = [
        file
        for folder in ("src", "docs", "examples", "benchmarks")
        for kind in ("*.py", "*.md", "*.toml", "*.ipynb")
        for file in (ROOT / folder).rglob(kind)
    ]
    return {str(file.relative_to(ROOT)): file.read_text() for file in [*files, ROOT / "README.md"]}


def _members(extra: str) -> set[str]:
    return {name for needed in EXTRAS[extra] for found in NAMED.findall(needed) for name in found.split(",")}


def test_the_changelog_begins_with_the_version_of_the_project_or_what_is_not_released_yet() -> None:
    """Code after a release has the version of the next one, as a state names the version that can go on with it."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    (released, *_) = re.findall(r"^## \[(.+?)\] - \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    version = Version(PROJECT["version"])
    if version.is_devrelease:
        assert headings[0] == "Unreleased" and version > Version(released)
    else:
        assert released == PROJECT["version"]


def test_every_extra_that_a_message_or_a_page_names_exists() -> None:
    named = {
        (place, name.strip())
        for place, text in _texts().items()
        for all in NAMED.findall(text)
        for name in all.split(",")
    }
    assert len(named) > 20
    assert {(place, name) for place, name in named if name not in EXTRAS} == set()


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - FOR_THE_PROJECT))
def test_the_page_on_installation_says_what_an_extra_is_for(extra: str) -> None:
    rows = [row for row in (DOCS / "install.md").read_text().splitlines() if row.startswith("| `")]
    assert any(f"`{extra}`" in row.split("|")[1] for row in rows)


def test_all_has_every_extra_for_users() -> None:
    reached = _members("all") | _members("track")
    assert reached == EXTRAS.keys() - FOR_THE_PROJECT - {"all"}


def test_a_command_asks_for_all_that_the_extra_lab_brings() -> None:
    brought = {Requirement(text).name.replace("-", "_") for text in EXTRAS["lab"]}
    assert {name.replace("sklearn", "scikit_learn") for name in LIBRARIES} == brought


def test_what_one_extra_takes_from_others_exists() -> None:
    assert {name for extra in EXTRAS for name in _members(extra) if name not in EXTRAS} == set()
