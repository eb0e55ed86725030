"""The papers: their tables and figures as sweeps, what they print, and what they claim.

A file for each paper has its `REPRODUCTIONS`: tables and figures, with published and measured numbers side by side.
Tables and figures that are views of the same runs are one reproduction, which is called after the first of them.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from ...settings.errors import SettingError
from .claims import Claim
from .pick import hint
from .reproduction import Reproduction
from .user_file import from_file

PAPERS = ("fedswa", "fedwindow", "ima", "wima")
"""The modules of the papers."""
CLAIMS = {
    "FedSWA": ("fedswa_claims",),
    "FedWindow": ("fedwindow_claims",),
    "IMA": ("ima_theory", "ima_claims"),
    "WiMA": ("wima_claims",),
}
"""The modules with the claims of each paper."""


def reproductions() -> dict[str, Reproduction]:
    """All reproductions by name: paper by paper, tables before figures, in the papers' order."""
    by_name: dict[str, Reproduction] = {}
    for paper in PAPERS:
        module = import_module(f"{__name__}.{paper}")
        for reproduction in module.REPRODUCTIONS:
            by_name[reproduction.name] = reproduction
    return by_name


def claims() -> dict[str, dict[str, Claim]]:
    """The claims of tiers A and B by paper and name, in the papers' order."""
    by_paper: dict[str, dict[str, Claim]] = {}
    for paper, modules in CLAIMS.items():
        by_paper[paper] = {}
        for module in modules:
            by_paper[paper] |= import_module(f"{__name__}.{module}").CLAIMS.by_name
    return by_paper


def names() -> list[str]:
    """The names of all reproductions."""
    return list(reproductions())


def titles() -> dict[str, str]:
    """The title of each reproduction."""
    return {name: reproduction.title for name, reproduction in reproductions().items()}


def load(name: str) -> Reproduction:
    """The reproduction of that name, or in a Python file of one's own: `"mine.py"`, or `"mine.py:NAME"` of several.

    The file is run. Raises `SettingError` if there is no such reproduction, and `ConfigError` for an error in the file.
    """
    known = reproductions()
    if name.endswith(".py"):
        return from_file(Path(name), "", list(known.values()))
    file, _, variable = name.rpartition(":")
    if file.endswith(".py"):
        return from_file(Path(file), variable, list(known.values()))
    if name not in known:
        raise SettingError("", "reproduction", name, _hint(name, known))
    return known[name]


def made_by(name: str) -> str:
    """The reproduction that makes this table or figure, or parts of it such as `ima-figure-5b`; "" if there is none."""
    for reproduction in reproductions().values():
        names = [table.name for table in reproduction.bound_tables]
        names += [figure.name for figure in reproduction.figures]
        if any(re.fullmatch(re.escape(name) + r"[a-z]?(-.*)?", each) for each in names):
            return reproduction.name
    return ""


def _hint(name: str, known: dict[str, Reproduction]) -> str:
    """What would be right in place of a name that no reproduction has."""
    whole = made_by(name)
    if whole:
        return f"is made by {whole}"
    return f"there is no such reproduction; {hint(name, list(known))}"
