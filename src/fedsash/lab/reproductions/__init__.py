"""The papers' tables and figures as sweeps, with published and measured numbers side by side.

Each reproduction is a file `NAME.toml` in this folder. To add a reproduction, add a file.
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
    """The reproduction of that name. Raises `ValueError` if there is none, or if its file has an error."""
    known = names()
    close = suggestion(name, known)
    hint = (
        f"must be one of {', '.join(known)}" if not close else f"there is no such reproduction; did you mean {close}?"
    )
    check(name in known, "reproduction", name, hint)
    return Reproduction.load(FOLDER / f"{name}.toml")


def _order(name: str) -> tuple[str, str, int]:
    paper, _, rest = name.partition("-")
    kind, number = re.sub(r"\d+", "", rest), re.findall(r"\d+", rest)
    return paper, "table" if kind.startswith("table") else "~" + kind, int(number[0]) if number else 0
