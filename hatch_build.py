"""What a distribution says of itself: the README with links that lead somewhere from elsewhere, too, and addresses.

The project's address stands in one place, `[tool.hatch.metadata.hooks.custom]` in pyproject.toml. While it is empty,
the README is taken as it is, and nothing names an address. The site takes it from there, too (`site_build/hook.py`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
CLONE = re.compile(r"git clone ADDRESS(.*?) *# ADDRESS: where you found the project$", re.MULTILINE)


def addressed(page: str, address: str) -> str:
    """A page with the command that clones the project, once its address is known."""
    if not address:
        return page
    return CLONE.sub(rf"git clone {address}\1", page)


def absolute(readme: str, address: str, version: str) -> str:
    """The README with links to files of the version's tag, and pictures as they are there; main before a release."""
    if not address:
        return readme
    place = "main" if "dev" in version else f"v{version}"

    def link(match: re.Match[str]) -> str:
        picture, text, file, anchor = match.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{text}]({address}/{kind}/{place}/{file}{anchor or ''})"

    return LINK.sub(link, addressed(readme, address))


def urls(address: str) -> dict[str, str]:
    """What an index shows beside the project."""
    if not address:
        return {}
    return {
        "Repository": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }


class CustomMetadataHook(MetadataHookInterface):
    """Called by hatchling, by this name."""

    def update(self, metadata: dict[str, Any]) -> None:
        address = self.config["address"]
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute(readme, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(address)
