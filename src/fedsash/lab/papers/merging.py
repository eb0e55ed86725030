"""Taking the rows of others into a ledger, after a look at each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runs import terminal
from ...settings.errors import FedsashError, RunError, check, one_line
from ...system import files
from ...system.lock import locked
from .claims import Claim
from .ledger import (
    FORMAT,
    PRINTED,
    Cell,
    Ledger,
    Row,
    cells,
    data_of,
    data_of_no_paper,
    other_data,
    setting_of,
)
from .reproduction import Reproduction

Claims = Mapping[str, Mapping[str, Claim]]
"""The claims of the papers, by paper and name."""
MOST_DIFFERENCES = 3
OURS = "ours: "
"""How the setting of evidence begins that is of no reproduction."""


@dataclass
class MergeReport:
    """What came of a merge: a line for each row and each file, and how many rows were taken."""

    lines: list[str]
    taken: int = 0


def merge(source: Path, ledger: Ledger, reproductions: Iterable[Reproduction], claims: Claims) -> MergeReport:
    """Take the rows of another ledger, or those in the folder of a reproduction.

    A file says itself of which cell or claim it is, wherever it lies. Its values must be numbers that the cell can
    have. Whether its settings are the printed ones is found here, whatever the file says, and what evidence says is
    judged anew. One merge at a time takes rows into a ledger. Raises `SettingError` for a folder that is none, or that
    is no ledger.
    """
    check(source.is_dir(), "--merge", str(source), "must be a folder with rows, such as RUN/rows")
    check_ledger(ledger.folder, "--ledger")
    if (source / "rows").is_dir():
        source = source / "rows"
    known = list(reproductions)
    by_place = {place(cell): cell for reproduction in known for cell in cells(reproduction)}
    report = MergeReport([])
    with locked(ledger.folder, wait=terminal.say):
        for path in sorted(source.rglob("*.json")):
            name = str(path.relative_to(source))
            try:
                for line in _entered(files.table(path), ledger, by_place, known, claims):
                    report.lines.append(line)
                    report.taken += 1
            except (FedsashError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                reason = one_line(error).removeprefix(f"{path}: ").removeprefix(f"{path} ")
                report.lines.append(f"{name}: left out: {reason}")
    return report


def check_ledger(folder: Path, option: str) -> None:
    """Raise `SettingError` for a place that holds other things than a ledger."""
    if not folder.exists():
        return
    check(folder.is_dir(), option, str(folder), "must be a folder")
    strange = [path.name for path in folder.iterdir() if path.name != "lock" and not _of_a_ledger(path)]
    check(not strange, option, str(folder), f"must be a ledger, or a new folder; it holds {', '.join(strange[:3])}")


def _of_a_ledger(path: Path) -> bool:
    """Whether it is a folder with JSON files, or with none yet: what begins with a dot is still being written."""
    if not path.is_dir():
        return False
    names = [file.name for file in path.iterdir() if not file.name.startswith(".")]
    return not names or any(name.endswith(".json") for name in names)


def place(cell: Cell) -> tuple[str, str, str, str]:
    """What a file says of its cell."""
    return cell.table.name, cell.row, cell.column, cell.cell


def _entered(
    table: Mapping[str, Any],
    ledger: Ledger,
    by_place: Mapping[tuple[str, str, str, str], Cell],
    reproductions: Iterable[Reproduction],
    claims: Claims,
) -> Iterator[str]:
    """Enter what a file holds, row by row; a line for each."""
    if not isinstance(table, Mapping) or table.get("format") != FORMAT or not isinstance(table.get("rows"), list):
        raise RunError(f"it is no file of a ledger, or of another format than {FORMAT}")
    if "claim" in table:
        yield from _entered_claim(table, ledger, reproductions, claims)
        return
    labels = tuple(table.get(key) for key in ("table", "row", "column", "cell"))
    if labels not in by_place:
        raise RunError(f"no paper has the number {' / '.join(map(str, labels))}")
    cell = by_place[labels]  # type: ignore[index]
    rows = [Row.load(row) for row in table["rows"]]
    for row in rows:  # all of them are looked at before the first is entered
        _check(other_data([row.settings], data_of(cell.settings)))
        if row.unreached and not cell.has_target:
            raise RunError("unreached: must be empty, as the number is not counted up to a target")
        for name, numbers in (("values", row.values), ("unreached", row.unreached)):
            for seed, value in numbers.items():
                requirement = cell.check(value)
                if requirement:
                    raise RunError(f"{name}.{seed} = {value:g}: {requirement}")
    for row in rows:
        entered = ledger.enter(cell, row)
        yield f"{cell.name}: {entered}, {_setting(row, cell)}"


def _setting(row: Row, cell: Cell) -> str:
    """The setting of a row in a few words: the printed one, or the first of its differences from it."""
    differences = row.differences(cell)
    if not differences:
        return "at the printed setting"
    words = f"{OURS}{'; '.join(differences[:MOST_DIFFERENCES])}"
    more = len(differences) - MOST_DIFFERENCES
    return f"{words} and {more} more" if more > 0 else words


def _entered_claim(
    table: Mapping[str, Any], ledger: Ledger, reproductions: Iterable[Reproduction], claims: Claims
) -> Iterator[str]:
    """Enter the evidence for a claim."""
    paper = str(table.get("paper"))
    name = str(table.get("claim"))
    if name not in claims.get(paper, {}):
        raise RunError(f"no paper has the claim {paper} {name}")
    claim = claims[paper][name]
    for row in table["rows"]:
        runs = []
        for settings in row["runs"]:
            runs.append({str(key): str(word) for key, word in settings.items()})
        _check(data_of_no_paper(runs))
        setting = _setting_of_claim(claim, row, runs, reproductions)
        entry = {key: row[key] for key in ("evidence", "source", "date", "subject") if key in row}
        entry |= {"runs": runs, "setting": setting}
        finding = ledger.enter_claim(paper, claim, entry)
        whose = "the printed setting" if setting == PRINTED else "ours"
        yield f"{paper} {name}: {finding.verdict} ({whose})"


def _check(problem: str) -> None:
    """Raise `RunError` if there is a problem."""
    if problem:
        raise RunError(problem)


def _reproduction(claim: Claim, reproductions: Iterable[Reproduction]) -> Reproduction:
    """The reproduction whose runs a claim is about."""
    (reproduction,) = [each for each in reproductions if each.name == claim.of]
    return reproduction


def _setting_of_claim(
    claim: Claim,
    row: Mapping[str, Any],
    runs: Sequence[Mapping[str, str]],
    reproductions: Iterable[Reproduction],
) -> str:
    """The setting of a claim's row in words. What no reproduction has run has no printed setting: the row words it."""
    if claim.of and runs:
        return setting_of(_reproduction(claim, reproductions), runs, str(row.get("subject", "")))
    setting = str(row["setting"])
    if not setting.startswith(OURS):
        raise RunError(f"its setting must begin with {OURS!r}, as no reproduction of the claim can show another one")
    return setting
