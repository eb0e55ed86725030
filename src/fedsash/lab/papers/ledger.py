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
from datetime import date
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ...settings.errors import RunError, SettingError, one_line
from ...system import files
from ...system.files import flat
from ..config.experiment import changes_numbers
from ..config.words import show, suggestion
from ..sweeps import PlannedRun, Sweep
from .claims import Claim, Finding
from .numbers import Key, Numbers
from .pick import SPEED_UPS, Pick
from .printed import PrintedNumber
from .reproduction import Reproduction
from .results import TO_TARGET, Results, safe
from .tables import DIMS, BoundTable

FORMAT = 1
SAME = 1e-9
"""Values of a seed that differ by less, relatively, are one."""
PRINTED = "the printed setting"
CLAIMS = "claims"
"""The folder of the claims' files."""
DATA = "data.name"
"""The setting that says of which data a number is."""
DATA_OF_PAPERS = (
    "cifar10",
    "cifar100",
    "digit_five",
    "fashion_mnist",
    "femnist",
    "landmarks",
    "mnist",
    "pacs",
    "shakespeare",
    "tiny_imagenet",
)
"""The data sets that the papers use: what the runs of a claim may have, whichever paper it is of."""
NO_SETTING = ("seed", "engine.precision", "data.path", "data.unpacked")
"""What a row's settings leave out: it has the seeds and the precision by themselves, and the rest changes no number."""
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
        return " / ".join(label for label in (self.row, self.column, self.cell) if label)

    @property
    def file(self) -> Path:
        """The path of its file in a ledger."""
        labels = (self.row, self.column, self.cell or "-")
        name = "--".join(safe(label) for label in labels)
        return Path(safe(self.table.name)) / f"{name}.json"

    @property
    def pick(self) -> Pick:
        """What selects its runs."""
        return self.table.pick(self.row, self.column, self.cell)

    def takes(self, run: PlannedRun) -> bool:
        """Whether a run is one of its own, or of those that its speed-up is counted against."""
        picks = [self.pick]
        if self.pick.statistic in SPEED_UPS:
            picks.append(self.pick | self.table.table.against)
        return any(pick.takes(run.labels) for pick in picks)

    @cached_property
    def settings(self) -> list[PrintedSettings]:
        """The paper's settings of its runs: one for each choice of a grid."""
        runs = [run for run in planned(self.reproduction).runs if self.pick.takes(run.labels)]
        return printed_settings(self.reproduction, runs, self.pick.model)

    @property
    def has_target(self) -> bool:
        """Whether it is counted up to a target, which a run may not reach."""
        statistic = self.pick.statistic
        return statistic in SPEED_UPS or statistic in TO_TARGET

    def check(self, value: float) -> str:
        """What is wrong with a value as this number; "" if nothing is."""
        if self.has_target:
            return "" if value > 0 else "must be above 0"
        return "" if 0 <= value <= 100 else "must be a share in per cent, from 0 to 100"


@dataclass(frozen=True)
class PrintedSettings:
    """The paper's settings of a run as words by their dotted keys, and which keys are `stated`, not at a default."""

    words: Mapping[str, str]
    stated: frozenset[str]

    def differences(self, settings: Mapping[str, str]) -> list[str]:
        """In what other settings differ, one line a key.

        A key that only the paper's have is a difference if it is stated; else it may be an option that came later.
        """
        lines = []
        for key, value in settings.items():
            if self.words.get(key) != value:
                lines.append(f"{key} = {value} (print: {self.words.get(key, 'left out')})")
        for key, printed in self.words.items():
            if key in self.stated and key not in settings:
                lines.append(f"{key} is left out (print: {printed})")
        return lines


def printed_settings(
    reproduction: Reproduction, runs: Sequence[PlannedRun], model: str | None = None
) -> list[PrintedSettings]:
    """The settings of some of the paper's runs, each once. Without a `model` all averages count."""
    stated = _stated(reproduction)
    distinct: list[PrintedSettings] = []
    for run in runs:
        settings = PrintedSettings(settings_of(run, model), stated[run.name])
        if settings not in distinct:
            distinct.append(settings)
    return distinct


def papers_settings(reproduction: Reproduction) -> list[PrintedSettings]:
    """The paper's settings of all runs of a reproduction, each once."""
    return printed_settings(reproduction, planned(reproduction).runs)


@dataclass(frozen=True)
class Row:
    """What was run for a cell, and what came out.

    - `values`: the number of each seed, in the table's unit: per cent, rounds, trips
    - `unreached`: all rounds or trips of each seed that did not reach the target, which has no number then; of a
      speed-up those of one of its two runs
    - `settings`: every setting that can change it by more than rounding, as words: `{"local.lr": "0.01"}`
    - `precision`, `device`, `engine`, `versions`: how it was computed
    - `date`, `source`: when it was entered, and from which command or page
    - `note`: what else is known, such as "one strength of three"
    """

    values: Mapping[str, float]
    settings: Mapping[str, str]
    unreached: Mapping[str, float] = field(default_factory=dict)
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
        if not isinstance(table, Mapping):
            raise ValueError(f"a row must be a table, and is {show(table)}")
        row = cls(**{name: table[name] for name in cls.__dataclass_fields__ if name in table})
        for name in ("values", "unreached", "settings", "versions"):
            if not isinstance(getattr(row, name), Mapping):
                raise ValueError(f"{name} = {show(getattr(row, name))}: must be a table")
        for name in ("precision", "device", "engine", "date", "source", "note"):
            if not isinstance(getattr(row, name), str):
                raise ValueError(f"{name} = {show(getattr(row, name))}: must be a text")
        if not row.seeds:
            raise ValueError("values: must have a value at least")
        _check_numbers("values", row.values)
        _check_numbers("unreached", row.unreached)
        for seed in row.unreached:
            if seed in row.values:
                raise ValueError(f"unreached.{seed}: must not have a value as well")
        for key, word in row.settings.items():
            if not isinstance(word, str):
                raise ValueError(f"settings.{key} = {show(word)}: must be a text")
        return row

    @property
    def identity(self) -> str:
        """A short name for its settings and its precision."""
        words = json.dumps([sorted(self.settings.items()), self.precision], ensure_ascii=False)
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    @property
    def seeds(self) -> list[str]:
        """The seeds that were run, whether they reached the target or not."""
        return [*self.values, *self.unreached]

    @property
    def mean(self) -> float:
        """The mean over its seeds that have a number; NaN without any."""
        return fmean(self.values.values()) if self.values else math.nan

    @property
    def deviation(self) -> float | None:
        """The standard deviation over its seeds, dividing by n - 1; None for one seed."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    def number(self, seed: str) -> str:
        """The number of a seed in words: 400+ if the target was not reached in 400 rounds."""
        if seed in self.unreached:
            return f"{self.unreached[seed]:g}+"
        return f"{self.values[seed]:.4g}"

    def __str__(self) -> str:
        """The mean of its numbers, the number of its seeds, and in how many the target was not reached."""
        count = len(self.seeds)
        seeds = "one seed" if count == 1 else f"{count} seeds"
        if not self.unreached:
            return f"{self.mean:.2f} from {seeds}"
        beyond = f"{max(self.unreached.values()):g}+"
        if not self.values:
            return f"{beyond} from {seeds}"
        return f"{self.mean:.2f} from {len(self.values)} of {seeds}, {beyond} from the rest"

    def differences(self, cell: Cell) -> list[str]:
        """In what its settings differ from the paper's, one line a key; from those of a grid that are nearest."""
        return nearest_differences(self.settings, cell.settings)

    def printed_setting(self, cell: Cell) -> bool:
        """Whether its settings are the paper's."""
        return not self.differences(cell)


def nearest_differences(settings: Mapping[str, str], printed: Sequence[PrintedSettings]) -> list[str]:
    """The differences from those of the paper's settings that are nearest."""
    return min((each.differences(settings) for each in printed), key=len, default=[])


def other_data(runs: Iterable[Mapping[str, str]], allowed: Sequence[str], whose: str = "the paper's") -> str:
    """What is wrong with the settings of runs whose data are none of those that are `allowed`; "" if nothing is.

    `whose` the allowed ones are is said in the words.

    Other rounds or rates give another row of a number. Other data, as at scale tiny, give no row of it at all.
    """
    for settings in runs:
        data = settings.get(DATA)
        if data is not None and allowed and data not in allowed:
            return f"the data are {data}, and {whose} {', '.join(allowed)}"
    return ""


def data_of_no_paper(runs: Iterable[Mapping[str, str]]) -> str:
    """What is wrong with the settings of a claim's runs if no paper uses their data; "" if one does, whichever."""
    return other_data(runs, [show(name) for name in DATA_OF_PAPERS], "the papers'")


def data_of(printed: Iterable[PrintedSettings]) -> list[str]:
    """The data sets of a paper's settings, as words: what a number's runs may have."""
    return list(dict.fromkeys(settings.words.get(DATA, "") for settings in printed))


def settings_of(run: PlannedRun, model: str | None = None) -> dict[str, str]:
    """The settings of a run that can change the numbers of a model by more than rounding, as words.

    Averages that only observe and are not this model change nothing. Without a model all averages count.
    """
    table = run.experiment.table()
    averages = dict(table.get("averages", {}))
    if model is not None:
        wanted = {model}
        if run.experiment.broadcast:
            wanted |= set(run.experiment.broadcast.averages)
        averages = {name: average for name, average in averages.items() if name in wanted}
    words = {}
    for key, value in flat(table | {"averages": averages}):
        if changes_numbers(key) and key not in NO_SETTING:
            words[key] = show(value)
    return words


@dataclass(frozen=True)
class _FullScale:
    """The runs of a reproduction at full scale, and the keys that are stated for each of them."""

    reproduction: Reproduction
    sweep: Sweep
    stated: dict[str, frozenset[str]]


_full_scales: dict[int, _FullScale] = {}
"""By the `id` of the reproduction, which is kept with it so that no other object gets the same `id`."""


def planned(reproduction: Reproduction) -> Sweep:
    """All runs of a reproduction at full scale. They are cached: a plan is asked for again for every cell."""
    return _full_scale(reproduction).sweep


def _stated(reproduction: Reproduction) -> dict[str, frozenset[str]]:
    return _full_scale(reproduction).stated


def _full_scale(reproduction: Reproduction) -> _FullScale:
    key = id(reproduction)
    if key not in _full_scales:
        _full_scales[key] = _FullScale(reproduction, reproduction.plan(), reproduction.stated())
    return _full_scales[key]


def cells(reproduction: Reproduction) -> list[Cell]:
    """The cells of a reproduction in which the paper prints a number, table by table."""
    printed = []
    for table in reproduction.bound_tables:
        for row, column, cell, number in table.places():
            if number.value is not None:
                printed.append(Cell(reproduction, table, row, column, cell, number))
    return printed


def find(reproduction: Reproduction, name: str) -> list[Cell]:
    """The cells of that name, such as "CIFAR-10 CNN a=0.1 / FedAvg / +IMA".

    Without the last part it is all numbers of a cell, and a row alone is all of its cells. Letter case, a leading + and
    "alpha" for "a" are forgiven. Raises `SettingError` if there is none.
    """
    wanted = [_plain(part) for part in SEPARATORS.split(name.strip())]
    known = cells(reproduction)
    matches = []
    for cell in known:
        parts = [_plain(part) for part in (cell.row, cell.column, cell.cell) if part]
        if wanted in (parts, parts[:2], parts[:1]):
            matches.append(cell)
    if matches:
        return matches
    close = suggestion(name, [cell.name for cell in known])
    if close:
        raise SettingError("", "--cell", name, f"did you mean {close}?")
    raise SettingError("", "--cell", name, f"must be a row, a column and a part, such as {known[0].name}")


def _plain(text: str) -> str:
    """A name without what is forgiven in it: letter case, blanks, "+", and "alpha" for "a"."""
    return re.sub(r"[\s+]+", "", text.lower().replace("alpha", "a"))


@dataclass(frozen=True)
class Ledger:
    """The rows in a folder. A folder that is not there yet has none."""

    folder: Path

    def rows(self, cell: Cell) -> list[Row]:
        """The rows of a cell. Raises `RunError` for a damaged file."""
        try:
            return [Row.load(row) for row in self._read(cell.file)]
        except (TypeError, ValueError) as error:
            raise RunError(f"{self.folder / cell.file}: {one_line(error)}") from error

    def enter(self, cell: Cell, row: Row, anew: bool = False) -> str:
        """Put a row into the cell's file: beside rows of other settings, with the seeds of the same ones.

        A seed that is there already keeps its value, unless it is entered `anew`. Returns what became of it in words.
        """
        rows = self.rows(cell)
        identities = [entered.identity for entered in rows]
        if row.identity not in identities:
            rows.append(row)
            message = str(row)
        else:
            place = identities.index(row.identity)
            if anew:
                rows[place] = _completed(row, rows[place])
                message = ""
            else:
                rows[place], message = _with_seeds(rows[place], row)
        about = {
            "paper": cell.reproduction.paper,
            "table": cell.table.name,
            "printed": cell.printed.text,
            "row": cell.row,
            "column": cell.column,
            "cell": cell.cell,
        }
        self._write(cell.file, about, [asdict(each) for each in rows])
        return message

    def numbers(self, reproduction: Reproduction, table: str = "") -> Numbers:
        """What was run at the printed setting, as the numbers of a table: one row of each cell (see `chosen`).

        A cell whose target a seed did not reach has no number: the others would be a mean of the fast ones alone.
        """
        values: dict[Key, Mapping[str, float]] = {}
        for key, row in self.rows_in_print(reproduction, table).items():
            if not row.unreached:
                values[key] = row.values
        return Numbers.measured(DIMS, values)

    def rows_in_print(self, reproduction: Reproduction, table: str = "") -> dict[tuple[str, str, str], Row]:
        """The row at the printed setting that stands for each cell of a table, by row, column and cell."""
        bound = reproduction.table(table)
        rows = {}
        for cell in cells(reproduction):
            if cell.table.name != bound.name:
                continue
            row = self.chosen(cell)
            if row is not None:
                rows[cell.row, cell.column, cell.cell] = row
        return rows

    def chosen(self, cell: Cell) -> Row | None:
        """The row at the printed setting that stands for a cell: the one with the most seeds; of a grid, the best."""
        rows = [row for row in self.rows(cell) if row.printed_setting(cell)]
        if not rows:
            return None
        most = max(len(row.seeds) for row in rows)
        rows = [row for row in rows if len(row.seeds) == most]
        with_numbers = [row for row in rows if not row.unreached]
        if not cell.table.table.best_over or not with_numbers:
            return rows[0]
        if cell.pick.statistic in TO_TARGET:
            return min(with_numbers, key=lambda row: row.mean)
        return max(with_numbers, key=lambda row: row.mean)

    def evidence(self, paper: str, claim: Claim) -> list[dict[str, Any]]:
        """The rows of a claim: each has `evidence`, the settings of its `runs`, and its `setting` in words."""
        return self._read(self._claim(paper, claim))

    def enter_own(
        self, paper: str, claim: Claim, evidence: Mapping[str, Numbers], setting: str, source: str
    ) -> Finding:
        """Enter evidence for a claim from runs that no reproduction describes, whose `setting` is in words."""
        saved = {name: numbers.saved() for name, numbers in evidence.items()}
        row = {"evidence": saved, "runs": [], "setting": setting, "source": source, "date": str(date.today())}
        return self.enter_claim(paper, claim, row)

    def enter_claim(self, paper: str, claim: Claim, row: Mapping[str, Any]) -> Finding:
        """Put evidence for a claim into its file: beside that of other settings, with the seeds of the same one.

        What the same command has entered of fewer runs, because one of its processes was killed, is replaced, and so is
        what the same benchmark has entered before. Returns what all of its seeds say.
        """
        claim.judged(_numbers(row))  # evidence of another shape is refused before anything is written
        rows = []
        for entered in self.evidence(paper, claim):
            is_same_command = entered.get("source") == row.get("source")
            if entered["setting"] == row["setting"]:
                if row["runs"] or not is_same_command:
                    row = {**row, "evidence": _joined(entered["evidence"], row["evidence"])}
                continue
            is_part = bool(entered["runs"]) and all(run in row["runs"] for run in entered["runs"])
            if not (is_same_command and is_part):
                rows.append(entered)
        rows.append(dict(row))
        about = {"paper": paper, "claim": claim.name, "says": claim.says}
        self._write(self._claim(paper, claim), about, rows)
        return claim.judged(_numbers(row))

    def judged(self, paper: str, claim: Claim) -> Iterator[tuple[Mapping[str, Any], Finding]]:
        """Each row of a claim, and what its evidence says today. Numbers of runs are never exact."""
        for row in self.evidence(paper, claim):
            yield row, claim.judged(_numbers(row))

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


def _with_seeds(entered: Row, row: Row) -> tuple[Row, str]:
    """An entered row with the seeds that only another one of the same settings has, and what came of each in words."""
    messages = []
    for seed in row.seeds:
        if seed in entered.seeds and not _same_number(entered, row, seed):
            before = entered.number(seed)
            messages.append(f"seed {seed} is there with {before}, which stays, and not {row.number(seed)}")
    if all(seed in entered.seeds for seed in row.seeds):
        return entered, "; ".join(messages) or "is there already"
    source = entered.source
    if row.source not in source:
        source = f"{source}; {row.source}"
    joined = replace(_completed(entered, row), source=source)
    messages.append(str(joined))
    return joined, "; ".join(messages)


def _same_number(entered: Row, row: Row, seed: str) -> bool:
    """Whether two rows have the same number of a seed, up to rounding; a target that both missed is the same."""
    if seed in entered.unreached or seed in row.unreached:
        return seed in entered.unreached and seed in row.unreached
    before = entered.values[seed]
    value = row.values[seed]
    return abs(before - value) <= SAME * max(1.0, abs(value))


def _completed(row: Row, other: Row) -> Row:
    """A row with those seeds of another one that it lacks."""
    values = dict(row.values)
    unreached = dict(row.unreached)
    for seed in other.seeds:
        if seed in row.seeds:
            continue
        if seed in other.unreached:
            unreached[seed] = other.unreached[seed]
        else:
            values[seed] = other.values[seed]
    return replace(row, values=values, unreached=unreached)


def _check_numbers(name: str, numbers: Mapping[str, Any]) -> None:
    """Raise `ValueError` for numbers of a row that are none, or are not called after their seeds."""
    for seed, value in numbers.items():
        if not seed.isdecimal():
            raise ValueError(f"{name}.{seed}: must be called after its seed, a number from 0 on")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name}.{seed} = {show(value)}: must be a number")


def _numbers(row: Mapping[str, Any]) -> dict[str, Numbers]:
    """The evidence in the row of a claim. It is of runs, and so never exact, whatever the row says."""
    return {name: Numbers.load(table, exact=False) for name, table in row["evidence"].items()}


def collect(
    reproduction: Reproduction, results: Results, ledger: Ledger, wanted: Iterable[Cell], date: str, source: str
) -> int:
    """Enter what runs of the paper's data gave for some cells into a ledger. Returns the number of cells."""
    entered = 0
    for cell in wanted:
        measured = cell.table.measured(cell.pick, results)
        values = measured.reached if measured.unreached else measured.values
        if not values and not measured.unreached:
            continue
        pick = cell.pick
        grid = cell.table.table.best_over
        if grid and measured.chosen:
            pick = pick | Pick({grid: (measured.chosen,)})
        used = results.runs(pick)
        run = used[0]
        if pick.statistic in SPEED_UPS:
            used = [*used, *results.runs(pick | cell.table.table.against)]
        if any(stopped_early(results, each) for each in used):
            continue
        if other_data([settings_of(run)], data_of(cell.settings)):
            continue
        summary = files.table(results.folder(run) / "summary.json")
        row = Row(
            values=dict(values),
            unreached=dict(measured.unreached),
            settings=settings_of(run, cell.pick.model),
            precision=run.experiment.engine.precision,
            device=str(summary.get("device", "")),
            engine=show(summary.get("engine", {})),
            versions={name: str(version) for name, version in summary.get("versions", {}).items()},
            date=date,
            source=source,
            note=_grid_note(cell, results),
        )
        ledger.enter(cell, row, anew=True)
        entered += 1
    return entered


def stopped_early(results: Results, run: PlannedRun) -> bool:
    """Whether a callback has ended a run before its last round: it is none of its setting then."""
    return bool(files.table(results.folder(run) / "summary.json").get("ended_early"))


def setting_of(reproduction: Reproduction, runs: Sequence[Mapping[str, str]], subject: str = "") -> str:
    """The setting of some runs in words, by their settings: "the printed setting", or in what they differ from it.

    `subject` are words for a claim whose runs are the paper's, but not those that it is about.
    """
    printed = papers_settings(reproduction)
    lines: list[str] = []
    for settings in runs:
        lines += nearest_differences(settings, printed)
    if subject:
        lines.append(subject)
    return "; ".join(dict.fromkeys(lines)) or PRINTED


def _joined(entered: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence of two rows of a claim, seed by seed."""
    joined = dict(entered)
    for name, table in new.items():
        if name in entered:
            before = Numbers.load(entered[name], exact=False)
            joined[name] = before.joined(Numbers.load(table, exact=False)).saved()
        else:
            joined[name] = table
    return joined


def _grid_note(cell: Cell, results: Results) -> str:
    """How much of a grid was run, if not all of it."""
    grid = cell.table.table.best_over
    if not grid:
        return ""
    whole = {run.labels[grid] for run in planned(cell.reproduction).runs if cell.pick.takes(run.labels)}
    finished = {run.labels[grid] for run in results.runs(cell.pick)}
    if finished >= whole:
        return ""
    return f"{len(finished & whole)} of {len(whole)} choices of {grid}: {', '.join(sorted(finished))}"
