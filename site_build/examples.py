"""The examples as part of the site: which of their files it has."""

from __future__ import annotations

from pathlib import Path

LEFT_BEHIND = {"runs", "keys", "__pycache__"}
"""Folders that running the examples leaves behind."""


def files(root: Path) -> list[Path]:
    """All files of the examples, relative to `root`; without what running them leaves behind."""
    every = sorted(file.relative_to(root) for file in (root / "examples").rglob("*") if file.is_file())
    return [file for file in every if LEFT_BEHIND.isdisjoint(file.parts)]
