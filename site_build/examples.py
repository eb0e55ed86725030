"""The examples as part of the site: their files, and a page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

from .markdown import table

HEAD = """\
# Examples

An experiment file, a sweep or a script for each thing. Each begins with what it shows and with its command.
"""
LEFT_BEHIND = {"runs", "keys", "__pycache__"}
"""Folders that running the examples leaves behind."""


def files(root: Path) -> list[Path]:
    """All files of the examples, relative to `root`; without what running them leaves behind."""
    every = sorted(file.relative_to(root) for file in (root / "examples").rglob("*") if file.is_file())
    return [file for file in every if LEFT_BEHIND.isdisjoint(file.parts)]


def page(root: Path) -> str:
    """The page: the files of each folder, and the first words of each."""
    folders: dict[Path, list[Path]] = {}
    for file in files(root):
        if file.suffix in (".toml", ".py") and first_words(root / file):
            folders.setdefault(file.parent, []).append(file)
    parts = [HEAD]
    for folder, of_folder in folders.items():
        parts.append(f"## {folder.as_posix()}")
        rows = [(_link(file), first_words(root / file)) for file in of_folder]
        parts.append(table(("file", "what it shows"), rows))
    return "\n\n".join(parts) + "\n"


def first_words(file: Path) -> str:
    """The first paragraph of the comment or docstring with which a file begins; empty if it begins with neither.

    The line that names the schema, for editors, does not count.
    """
    text = re.sub(r"^#:schema .*\n", "", file.read_text())
    if text.startswith('"""'):
        return text[3:].partition('"""')[0].partition("\n\n")[0]
    lines = []
    for line in text.splitlines():
        if not line.startswith("#") or not line.strip("# "):
            break
        lines.append(line.strip("# "))
    return " ".join(lines)


def _link(file: Path) -> str:
    return f"[`{file.name}`]({file.relative_to('examples').as_posix()})"
