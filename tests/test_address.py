"""The project's address, of which the links of a distribution and of the site are made; it stands in one place."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from hatch_build import CustomMetadataHook, addressed

from support.places import DOCS, ROOT
from support.release import PROJECT

ADDRESS = "https://example.org/somebody/fedsash"
README = (ROOT / "README.md").read_text()
LINKS = re.compile(r"\]\(([^)]+)\)")


def described(address: str, version: str) -> dict[str, Any]:
    """What the hook adds to a distribution's metadata."""
    metadata: dict[str, Any] = {"version": version}
    CustomMetadataHook(str(ROOT), {"address": address}).update(metadata)
    return metadata


def test_every_link_of_the_readme_is_absolute_once_there_is_an_address() -> None:
    text = described(ADDRESS, "0.3.0")["readme"]["text"]
    assert "ADDRESS" not in text and f"git clone {ADDRESS} fedsash && cd fedsash\n" in text
    assert [link for link in LINKS.findall(text) if not link.startswith("https://")] == []
    assert len(LINKS.findall(text)) == len(LINKS.findall(README)) > 20


def test_every_link_leads_to_a_file_of_the_version() -> None:
    text = described(ADDRESS, "0.3.0")["readme"]["text"]
    files = re.findall(rf"\({ADDRESS}/(?:blob|raw)/v0\.3\.0/([^)#]+)", text)
    assert len(files) > 20 and all((ROOT / file).is_file() for file in files)
    assert f"({ADDRESS}/raw/v0.3.0/docs/digits.png)" in text
    assert f"({ADDRESS}/blob/v0.3.0/docs/install.md#what-has-been-tried)" in text


def test_before_a_release_the_links_lead_to_the_main_branch() -> None:
    assert f"({ADDRESS}/blob/main/docs/install.md)" in described(ADDRESS, "0.3.0.dev0")["readme"]["text"]


def test_without_an_address_the_readme_is_taken_as_it_is() -> None:
    readme = {"content-type": "text/markdown", "text": README}
    assert described("", "0.3.0") == {"version": "0.3.0", "readme": readme, "urls": {}}


def test_what_an_index_shows_begins_with_the_address() -> None:
    urls = described(ADDRESS, "0.3.0")["urls"]
    assert set(urls) == {"Repository", "Issues", "Changelog"}
    assert all(url.startswith(ADDRESS) for url in urls.values())


@pytest.mark.parametrize("page", [README, (DOCS / "install.md").read_text()], ids=["README.md", "install.md"])
def test_a_page_that_clones_the_project_does_so_from_the_address(page: str) -> None:
    assert page.count("ADDRESS") == 2
    assert addressed(page, ADDRESS).count(f"git clone {ADDRESS} fedsash") == 1
    assert "ADDRESS" not in addressed(page, ADDRESS)


def test_the_address_has_no_slash_at_its_end() -> None:
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    assert hook["address"] == "" or re.fullmatch(r"https://\S+[^/]", hook["address"])
    assert set(PROJECT["dynamic"]) == {"readme", "urls"}
