"""The ledger: for each printed number and each claim what was run, and what came out.

It is a folder with one JSON file for each cell of a table, `TABLE/ROW--COLUMN--CELL.json`, and for each claim,
`claims/PAPER-NAME.json`. A file holds rows, one for each setting in which the cell was run. A row names its settings in
words and values, so no later change of a format, a module or an identity makes it unreadable. Whether they are the
printed ones is not taken from the file: it is found anew whenever a row is read, against the paper's own settings.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ...basics.errors import RunError, SettingError, check, one_line
from .. import files
from ..config.experiment import changes_numbers
from ..config.words import show, suggestion
from ..files import flat
from ..sweeps import PlannedRun, Sweep
from .claims import Claim, Finding
from .numbers import Key, Numbers
from .pick import SPEED_UPS, Pick
from .printed import PrintedNumber
from .reproduction import Reproduction
from .results import TO_TARGET, Results, safe
from .tables import DIMS, START, BoundTable

FORMAT = 1
CLAIMS = "claims"
"""The folder of the claims' files."""
NO_SETTING = ("seed", "partition_seed", "engine.precision", "data.path", "data.unpacked")
"""What a row's settings leave out: it has the seeds and the precision by themselves, and the rest changes no number."""
ESSENTIAL = ("rounds", "local.lr", "local.batch", "local.epochs", "sampling.count", "partition.clients")
"""Settings that a row must have, beside the names of what is used; other options may have come after it."""
SEPARATORS = re.compile(r"\s*/\s*")


@dataclass(frozen=True)
class Cell:
    """One number of a paper's table, and the runs that it is of."""

    reproduction: Reproduction = field(repr=False)
    table: BoundTable = field(repr=False)
    row: str
    column: str
    cell: str
    printed: PrintedNumber

    @property
    def name(self) -> str:
        """What people call it: its row, its column, and its place in the cell."""
        return " / ".join(filter(None, (self.row, self.column, self.cell)))

    @property
    def file(self) -> Path:
        """The path of its file in a ledger."""
        return Path(safe(self.table.name)) / ("--".join(map(safe, (self.row, self.column, self.cell or "-"))) + ".json")

    @property
    def pick(self) -> Pick:
        """What selects its runs."""
        table = self.table.table
        places = self.table.rows[self.row] | self.table.columns[self.column] | table.cells[self.cell]
        return START | table.where | places

    def takes(self, run: PlannedRun) -> bool:
        """Whether a run is one of its own, or of those that its speed-up is counted against."""
        picks = [self.pick]
        if self.pick.statistic in SPEED_UPS:
            picks.append(self.pick | self.table.table.against)
        return any(pick.takes(run.labels) for pick in picks)

    @cached_property
    def settings(self) -> list[dict[str, str]]:
        """The paper's settings of its runs, as a row has them: one for each choice of a grid."""
        runs = [run for run in planned(self.reproduction).runs if self.pick.takes(run.labels)]
        tables = [settings_of(run, self.pick.model) for run in runs]
        return [table for i, table in enumerate(tables) if table not in tables[:i]]


@dataclass(frozen=True)
class Row:
    """What was run for a cell, and what came out.

    - `values`: the number of each seed, in the table's unit: per cent, rounds, trips
    - `settings`: every setting that can change it by more than rounding, as words: `{"local.lr": "0.01"}`
    - `precision`, `device`, `engine`, `versions`: how it was computed
    - `date`, `source`: when it was entered, and from which command or page
    - `note`: what else is known, such as "one strength of three"
    """

    values: Mapping[str, float]
    settings: Mapping[str, str]
    precision: str = "full"
    device: str = ""
    engine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    source: str = ""
    note: str = ""

    @classmethod
    def load(cls, table: Mapping[str, Any]) -> Row:
        """The row in a file. Raises `ValueError` for one that is damaged."""
        known = {name: table[name] for name in cls.__dataclass_fields__ if name in table}
        row = cls(**known)
        if not isinstance(row.values, Mapping) or not row.values or not isinstance(row.settings, Mapping):
            raise ValueError("a row needs values by seed, and settings")
        for seed, value in row.values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"values.{seed} = {show(value)}: must be a number")
        return row

    @property
    def identity(self) -> str:
        """A short name for its settings and its precision."""
        words = json.dumps([sorted(self.settings.items()), self.precision], ensure_ascii=False)
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    @property
    def mean(self) -> float:
        """The mean over its seeds."""
        return fmean(self.values.values())

    @property
    def deviation(self) -> float | None:
        """The standard deviation over its seeds, dividing by n - 1; None for one seed."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    def differences(self, cell: Cell) -> list[str]:
        """In what its settings differ from the paper's, one line a key; from the nearest of a grid. Empty: in nothing.

        What the paper's settings of today have and the row has not is no difference: it is an option that came later.
        """
        return min((differing(self.settings, settings) for settings in cell.settings), key=len, default=[])

    def printed_setting(self, cell: Cell) -> bool:
        """Whether its settings are the paper's."""
        return not self.differences(cell)


def differing(settings: Mapping[str, str], printed: Mapping[str, str]) -> list[str]:
    """One line for each key of `settings` that has another value in print, or of print that has no meaning here."""
    lines = []
    for key, value in settings.items():
        if printed.get(key, value) != value or (key not in printed and not key.endswith(".name")):
            lines.append(f"{key} = {value} (print: {printed.get(key, 'left out')})")
    needed = [key for key in printed if key in ESSENTIAL or key.endswith(".name")]
    lost = [key for key in needed if key not in settings]
    return lines + [f"{key} is left out (print: {printed[key]})" for key in lost]


def settings_of(run: PlannedRun, model: str) -> dict[str, str]:
    """The settings of a run that can change the numbers of a model by more than rounding, as words.

    Averages that only observe and are not this model change nothing.
    """
    table = run.experiment.table()
    broadcast = run.experiment.broadcast
    wanted = {model} | (set(broadcast.averages) if broadcast else set())
    averages = {name: each for name, each in table.get("averages", {}).items() if name in wanted}
    words = {}
    for key, value in flat(table | {"averages": averages}):
        if changes_numbers(key) and key not in NO_SETTING:
            words[key] = show(value)
    return words


_planned: dict[str, Sweep] = {}


def planned(reproduction: Reproduction) -> Sweep:
    """All runs of a reproduction at full scale; made once for those that come with fedsash."""
    if reproduction.name not in _planned:
        _planned[reproduction.name] = reproduction.plan()
    return _planned[reproduction.name]


def cells(reproduction: Reproduction) -> list[Cell]:
    """The cells of a reproduction in which the paper prints a number, table by table."""
    found = []
    for table in reproduction.bound_tables:
        for row, column, cell, number in table.places():
            if number.value is not None:
                found.append(Cell(reproduction, table, row, column, cell, number))
    return found


def find(reproduction: Reproduction, name: str) -> list[Cell]:
    """The cells of that name, such as "CIFAR-10 CNN a=0.1 / FedAvg / +IMA".

    Without the last part it is all numbers of a cell, and a row alone is all of its cells. Letter case, a leading + and
    "alpha" for "a" are forgiven. Raises `SettingError` if there is none.
    """
    wanted = [_plain(part) for part in SEPARATORS.split(name.strip())]
    known = cells(reproduction)
    found = []
    for cell in known:
        parts = [_plain(part) for part in (cell.row, cell.column, cell.cell) if part]
        if wanted in (parts, parts[:2], parts[:1]):
            found.append(cell)
    if not found:
        close = suggestion(name, [cell.name for cell in known])
        right = f"did you mean {close}?" if close else f"must be a row, a column and a part, such as {known[0].name}"
        raise SettingError("", "--cell", name, right)
    return found


def _plain(text: str) -> str:
    return re.sub(r"[\s+]+", "", text.lower().replace("alpha", "a"))


@dataclass(frozen=True)
class Ledger:
    """The rows in a folder. A folder that is not there yet has none."""

    folder: Path

    def rows(self, cell: Cell) -> list[Row]:
        """The rows of a cell. Raises `RunError` for a damaged file."""
        return [Row.load(row) for row in self._read(cell.file)]

    def enter(self, cell: Cell, row: Row) -> str:
        """Put a row into the cell's file: beside rows of other settings, with the seeds of the same ones.

        A seed that is there already keeps its value. Returns a line if the new value is another one, else "".
        """
        rows = self.rows(cell)
        same = next((i for i, there in enumerate(rows) if there.identity == row.identity), None)
        said = ""
        if same is None:
            rows.append(row)
        else:
            there = rows[same]
            other = [seed for seed, value in row.values.items() if abs(there.values.get(seed, value) - value) > 1e-9]
            if other:
                said = f"{cell.name}: seed {', '.join(other)} is there with another value, which stays"
            rows[same] = replace(there, values={**row.values, **there.values})
        about = {"paper": cell.reproduction.paper, "table": cell.table.name, "printed": cell.printed.text}
        about |= {"row": cell.row, "column": cell.column, "cell": cell.cell}
        self._write(cell.file, about, [asdict(each) for each in rows])
        return said

    def numbers(self, reproduction: Reproduction, table: str = "") -> Numbers:
        """What was run at the printed setting, as the numbers of a table: one row of each cell (see `chosen`)."""
        bound = reproduction.table(table)
        values: dict[Key, Mapping[str, float]] = {}
        for cell in cells(reproduction):
            if cell.table.name == bound.name and (row := self.chosen(cell)):
                values[cell.row, cell.column, cell.cell] = row.values
        return Numbers.measured(DIMS, values)

    def chosen(self, cell: Cell) -> Row | None:
        """The row at the printed setting that stands for a cell: the one with the most seeds; of a grid, the best."""
        rows = [row for row in self.rows(cell) if row.printed_setting(cell)]
        if not rows:
            return None
        most = max(len(row.values) for row in rows)
        rows = [row for row in rows if len(row.values) == most]
        if not cell.table.table.best_over:
            return rows[0]
        fewer_is_better = cell.pick.statistic in TO_TARGET
        return min(rows, key=lambda row: row.mean if fewer_is_better else -row.mean)

    def evidence(self, paper: str, claim: Claim) -> list[dict[str, Any]]:
        """The rows of a claim: each has `evidence`, `setting` in words, and whether it is the `printed` one."""
        return self._read(self._claim(paper, claim))

    def enter_claim(self, paper: str, claim: Claim, row: Mapping[str, Any]) -> None:
        """Put evidence for a claim into its file: beside that of other settings, with the seeds of the same one."""
        rows = []
        for there in self.evidence(paper, claim):
            if there["setting"] != row["setting"]:
                rows.append(there)
            else:
                row = {**row, "evidence": _joined(there["evidence"], row["evidence"])}
        about = {"paper": paper, "claim": claim.name, "says": claim.says}
        self._write(self._claim(paper, claim), about, [*rows, dict(row)])

    def judged(self, paper: str, claim: Claim) -> Iterator[tuple[Mapping[str, Any], Finding]]:
        """Each row of a claim, and what its evidence says today."""
        for row in self.evidence(paper, claim):
            evidence = {name: Numbers.load(table) for name, table in row["evidence"].items()}
            yield row, claim.judged(evidence)

    def _claim(self, paper: str, claim: Claim) -> Path:
        return Path(CLAIMS) / f"{safe(paper)}-{claim.name}.json"

    def _read(self, file: Path) -> list[dict[str, Any]]:
        path = self.folder / file
        try:
            table = files.table(path)
            if table.get("format") != FORMAT:
                raise ValueError(f"its format is {show(table.get('format'))}, and this fedsash knows {FORMAT}")
            rows: list[dict[str, Any]] = list(table["rows"])
            return rows
        except FileNotFoundError:
            return []
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path}: is no file of a ledger: {one_line(error)}") from error

    def _write(self, file: Path, about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_table(path, {"format": FORMAT, **about, "rows": list(rows)})


def collect(
    reproduction: Reproduction, results: Results, ledger: Ledger, wanted: Iterable[Cell], date: str, source: str
) -> int:
    """Enter what runs gave for some cells into a ledger. Returns the number of cells."""
    entered = 0
    for cell in wanted:
        number = next(
            n for n in cell.table.numbers(results) if (n.row, n.column, n.cell) == (cell.row, cell.column, cell.cell)
        )
        measured = number.measured
        if not measured.values:
            continue
        pick = cell.pick
        grid = cell.table.table.best_over
        if grid and measured.chosen:
            pick = pick | Pick({grid: (measured.chosen,)})
        run = results.runs(pick)[0]
        summary = files.table(results.folder(run) / "summary.json")
        row = Row(
            values=dict(measured.values),
            settings=settings_of(run, cell.pick.model),
            precision=run.experiment.engine.precision,
            device=str(summary.get("device", "")),
            engine=show(summary.get("engine", {})),
            versions={name: str(version) for name, version in summary.get("versions", {}).items()},
            date=date,
            source=source,
            note=_grid_note(cell, results),
        )
        ledger.enter(cell, row)
        entered += 1
    return entered


def _joined(there: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence of two rows of a claim, seed by seed."""
    joined = dict(there)
    for name, table in new.items():
        numbers = Numbers.load(table)
        joined[name] = Numbers.load(there[name]).joined(numbers).saved() if name in there else table
    return joined


def _grid_note(cell: Cell, results: Results) -> str:
    """How much of a grid was run, if not all of it."""
    grid = cell.table.table.best_over
    if not grid:
        return ""
    whole = {run.labels[grid] for run in planned(cell.reproduction).runs if cell.pick.takes(run.labels)}
    done = {run.labels[grid] for run in results.runs(cell.pick)}
    return "" if done >= whole else f"{len(done & whole)} of {len(whole)} choices of {grid}: {', '.join(sorted(done))}"


def merge(
    source: Path,
    ledger: Ledger,
    reproductions: Iterable[Reproduction],
    claims: Mapping[str, Mapping[str, Claim]] | None = None,
) -> list[str]:
    """Take the rows of another ledger, or of the `rows` of a reproduction's folder. Returns lines on what was done.

    Each row is checked: its cell must be one of the papers', and its values must be numbers. Whether its settings are
    the printed ones is found here, whatever the file says. `claims` are those of the papers, by paper and name: what
    their evidence says is judged anew, too.
    """
    check(source.is_dir(), "--merge", str(source), "must be a folder with rows, such as RUN/rows")
    known = {cell.file: cell for reproduction in reproductions for cell in cells(reproduction)}
    lines = []
    for path in sorted(source.rglob("*.json")):
        file = path.relative_to(source)
        if file.parts[0] == CLAIMS:
            lines += _merged_claim(path, source, ledger, claims)
            continue
        if file not in known:
            lines.append(f"{path}: left out: no paper has such a cell")
            continue
        cell = known[file]
        try:
            rows = Ledger(source).rows(cell)
        except (RunError, ValueError, TypeError) as error:
            lines.append(f"{path}: left out: {one_line(error)}")
            continue
        for row in rows:
            said = ledger.enter(cell, row)
            differs = row.differences(cell)
            kind = f"ours: {'; '.join(differs[:3])}" if differs else "at the printed setting"
            lines.append(said or f"{cell.name}: {row.mean:.2f} from {_seeds(len(row.values))}, {kind}")
    return lines


def _merged_claim(
    path: Path, source: Path, ledger: Ledger, claims: Mapping[str, Mapping[str, Claim]] | None
) -> list[str]:
    """Take the evidence for a claim from its file in another ledger. Returns lines on what was done."""
    known = {
        safe(paper) + "-" + name: (paper, claim) for paper, of in (claims or {}).items() for name, claim in of.items()
    }
    if path.stem not in known:
        return [f"{path}: left out: no paper has such a claim"]
    paper, claim = known[path.stem]
    lines = []
    try:
        for row, finding in list(Ledger(source).judged(paper, claim)):
            ledger.enter_claim(paper, claim, {"setting": str(row["setting"]), **row})
            lines.append(f"{paper} {claim.name}: {finding.verdict} ({row['setting']})")
    except (RunError, KeyError, ValueError, TypeError, AttributeError) as error:
        return [f"{path}: left out: {one_line(error)}"]
    return lines


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"
