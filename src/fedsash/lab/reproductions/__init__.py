"""The papers' tables and figures as sweeps, with published and measured numbers side by side.

Each reproduction is a file `NAME.toml` in this folder. To add a reproduction, add a file. Tables and figures that are
views of the same runs are in one file, which is called after the first of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...basics.errors import check
from ..config.files import read
from ..config.words import suggestion
from .reproduction import Reproduction

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The names of all reproductions: paper by paper, tables before figures, in the papers' order."""
    return sorted((file.stem for file in FOLDER.glob("*.toml")), key=_order)


def titles() -> dict[str, str]:
    """The title of each reproduction. The files are read, but not checked."""
    return {name: str(read(FOLDER / f"{name}.toml").get("title", "")) for name in names()}


def load(name: str) -> Reproduction:
    """The reproduction of that name, or in a file `name` of one's own. Raises `ValueError` if there is none, or if its
    file has an error."""
    if name.endswith(".toml"):
        return Reproduction.load(Path(name))
    known = names()
    check(name in known, "reproduction", name, "" if name in known else _hint(name, known))
    return Reproduction.load(FOLDER / f"{name}.toml")


def made_by(name: str) -> str:
    """The reproduction that makes this table or figure, or parts of it such as `ima-figure-5b`; "" if there is none."""
    for file in sorted(FOLDER.glob("*.toml")):
        content = read(file)
        made = (str(of.get("name", "")) for key in ("tables", "figures") for of in content.get(key, []))
        if any(re.fullmatch(re.escape(name) + r"[a-z]?(-.*)?", of) for of in made):
            return file.stem
    return ""


def _hint(name: str, known: list[str]) -> str:
    """What would be right in place of a name that no reproduction has."""
    if whole := made_by(name):
        return f"is made by {whole}"
    close = suggestion(name, known)
    return f"there is no such reproduction; did you mean {close}?" if close else f"must be one of {', '.join(known)}"


def _order(name: str) -> tuple[str, str, int]:
    paper, _, rest = name.partition("-")
    kind, number = re.sub(r"\d+", "", rest), re.findall(r"\d+", rest)
    return paper, "table" if kind.startswith("table") else "~" + kind, int(number[0]) if number else 0
