"""Taking the rows of others into a ledger, after a look at each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runs import terminal
from ...settings.errors import FedsashError, RunError, check, one_line
from ...system import files
from ...system.lock import locked
from .claims import Claim
from .ledger import FORMAT, PRINTED, Cell, Ledger, Row, cells, setting_of
from .reproduction import Reproduction

Claims = Mapping[str, Mapping[str, Claim]]
"""The claims of the papers, by paper and name."""
MOST_DIFFERENCES = 3


@dataclass
class Merged:
    """What came of a merge: a line for each row and each file, and how many rows were taken."""

    lines: list[str]
    taken: int = 0


def merge(source: Path, ledger: Ledger, reproductions: Iterable[Reproduction], claims: Claims) -> Merged:
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
    merged = Merged([])
    with locked(ledger.folder, wait=terminal.say):
        for path in sorted(source.rglob("*.json")):
            name = str(path.relative_to(source))
            try:
                for line in _taken(files.table(path), ledger, by_place, known, claims):
                    merged.lines.append(line)
                    merged.taken += 1
            except (FedsashError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                reason = one_line(error).removeprefix(f"{path}: ").removeprefix(f"{path} ")
                merged.lines.append(f"{name}: left out: {reason}")
    return merged


def check_ledger(folder: Path, option: str) -> None:
    """Raise `SettingError` for a place that holds other things than a ledger."""
    if not folder.exists():
        return
    check(folder.is_dir(), option, str(folder), "must be a folder")
    there = [path for path in folder.iterdir() if path.name != "lock"]
    strange = [path.name for path in there if not _of_a_ledger(path)]
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


def _taken(
    table: Mapping[str, Any],
    ledger: Ledger,
    by_place: Mapping[tuple[str, str, str, str], Cell],
    reproductions: Iterable[Reproduction],
    claims: Claims,
) -> Iterator[str]:
    """Take what a file holds, row by row; a line for each."""
    if not isinstance(table, Mapping) or table.get("format") != FORMAT or not isinstance(table.get("rows"), list):
        raise RunError(f"it is no file of a ledger, or of another format than {FORMAT}")
    if "claim" in table:
        yield from _taken_claim(table, ledger, reproductions, claims)
        return
    said = tuple(table.get(key) for key in ("table", "row", "column", "cell"))
    if said not in by_place:
        raise RunError(f"no paper has the number {' / '.join(map(str, said))}")
    cell = by_place[said]  # type: ignore[index]
    rows = [Row.load(row) for row in table["rows"]]
    for row in rows:
        for seed, value in row.values.items():
            if wrong := cell.check(value):
                raise RunError(f"values.{seed} = {value:g}: {wrong}")
    for row in rows:
        what = ledger.enter(cell, row)
        differs = row.differences(cell)
        more = f" and {len(differs) - MOST_DIFFERENCES} more" if len(differs) > MOST_DIFFERENCES else ""
        kind = f"ours: {'; '.join(differs[:MOST_DIFFERENCES])}{more}" if differs else "at the printed setting"
        yield f"{cell.name}: {what}, {kind}"


def _taken_claim(
    table: Mapping[str, Any], ledger: Ledger, reproductions: Iterable[Reproduction], claims: Claims
) -> Iterator[str]:
    """Take the evidence for a claim."""
    paper = str(table.get("paper"))
    name = str(table.get("claim"))
    if name not in claims.get(paper, {}):
        raise RunError(f"no paper has the claim {paper} {name}")
    claim = claims[paper][name]
    (reproduction,) = [each for each in reproductions if each.name == claim.of]
    for row in table["rows"]:
        runs = [{str(key): str(word) for key, word in settings.items()} for settings in row["runs"]]
        setting = setting_of(reproduction, runs, str(row.get("subject", "")))
        kept = {key: row[key] for key in ("evidence", "source", "date", "subject") if key in row}
        finding = ledger.enter_claim(paper, claim, {**kept, "runs": runs, "setting": setting})
        yield f"{paper} {name}: {finding.verdict} ({'the printed setting' if setting == PRINTED else 'ours'})"
