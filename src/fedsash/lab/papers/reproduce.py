"""Carrying out a reproduction: train its runs, fill its tables, draw its figures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from ...runs import terminal
from ...system.files import flat, replace_file, write_table
from ...system.lock import locked
from ...system.paths import check_folder
from ..config import ConfigError
from ..config.experiment import changes_numbers
from ..config.registries import REGISTRIES
from ..config.words import ENDS, show
from ..sweeps import PlannedRun, Sweep, all_or, check_same, execute
from . import claims, reproductions
from .claims import NO_NUMBERS
from .figures import Job
from .ledger import (
    Cell,
    Ledger,
    cells,
    collect,
    data_of,
    data_of_no_paper,
    other_data,
    papers_settings,
    setting_of,
    settings_of,
    stopped_early,
)
from .reproduction import SCALES, Reproduction
from .results import Results, safe

ROWS = "rows"
"""The folder, in that of a reproduction, with what it adds to a ledger."""
MOST_VALUES = 4
"""How many values of a setting a line on differences has."""
PATH = re.compile(r"""(\bpath\s*=\s*["']?)[^"',}]*/""")
"""The path of data in a setting such as `data.path=/home/me/mnist` or `data={path="/me/mnist"}`, up to its name."""


@dataclass(frozen=True)
class Order:
    """What is to be made of a reproduction: a `scale`, `only` some runs, `overrides`; all as in `Reproduction.plan`.

    With `cells`, numbers of its tables, only their runs are trained, and no figure is drawn. `data` holds a folder
    for each data set, with the data set's name.
    """

    reproduction: Reproduction
    scale: str = "full"
    only: Sequence[str] = ()
    overrides: Sequence[str] = ()
    own_code: bool = False
    data: Path = Path("data")
    cells: Sequence[Cell] = ()

    @cached_property
    def requested(self) -> Sweep:
        """The runs that this call is for. Raises `ConfigError` for unknown labels and settings."""
        sweep = self.reproduction.plan(self.scale, self.only, self.overrides, self.own_code)
        if not self.cells:
            return sweep
        runs = [run for run in sweep.runs if any(cell.takes(run) for cell in self.cells)]
        if not runs:
            names = ", ".join(cell.name for cell in self.cells)
            axes = "; ".join(f"{axis}: {', '.join(labels)}" for axis, labels in sweep.axes.items())
            reason = f"none of its runs is asked for; at scale {self.scale} these are: {axes}"
            raise ConfigError(f"--cell {names}: {reason}")
        return replace(sweep, runs=runs)

    @cached_property
    def whole(self) -> Sweep:
        """All runs of the scale. If the overrides do not fit the other runs, only the requested ones."""
        return all_or(
            self.requested,
            lambda: self.reproduction.plan(self.scale, overrides=self.overrides, own_code=self.own_code),
        )

    def check_runs(self, out: Path) -> None:
        """Raise `ConfigError` if `out` holds runs at another scale or with other settings.

        The requested ones may have had fewer rounds: they go on.
        """
        requested = {run.name for run in self.requested.runs}
        sweep, _ = with_data(self.whole, self.data)
        for run in sweep.runs:
            check_same(run.experiment, out / "runs" / run.name, longer=run.name in requested)

    def results(self, out: Path, missing: Mapping[str, str]) -> Results:
        """The results in `out` of the requested runs, and of those of earlier calls."""
        requested = {run.name for run in self.requested.runs}
        others = [run for run in self.whole.runs if run.name not in requested]
        axes = {}
        for axis, labels in self.whole.axes.items():
            axes[axis] = list(dict.fromkeys([*labels, *self.requested.axes[axis]]))
        sweep = replace(self.whole, axes=axes, runs=[*self.requested.runs, *others])
        earlier = frozenset(run.name for run in others)
        return Results(sweep, out, self.reproduction.labels, missing, earlier, self.scale)

    def note(self) -> str:
        """What stands below its tables: how its runs differ from the paper's, and the reproduction's own note."""
        lines = []
        if self._warning:
            lines.append(f"{self._warning} {'; '.join(self.differences)}.")
        lines.append(self._own_note)
        return "\n".join(line for line in lines if line)

    def note_lines(self) -> list[str]:
        """The note for a terminal: each difference and each sentence is a line."""
        lines = []
        if self._warning:
            lines.append(f"{self._warning}:")
            lines += [f"  - {difference}" for difference in self.differences]
        if self._own_note:
            lines += re.split(ENDS, self._own_note)
        return lines

    @cached_property
    def _own_note(self) -> str:
        return self.reproduction.note_on([run.labels for run in self.requested.runs])

    @cached_property
    def _warning(self) -> str:
        """The warning on runs that differ from the full scale's settings, before a list of them; "" if none does."""
        if (self.scale == "full" and not self.overrides) or not self.differences:
            return ""
        if self.scale == "full":
            return "Not the full scale's settings, so the paper's numbers may be of others. It has"
        which = f"Scale {self.scale} ({SCALES[self.scale]})"
        return f"{which}: these numbers are not comparable with the paper's. It has"

    @cached_property
    def differences(self) -> list[str]:
        """The settings in which its runs differ from the paper's, one line a key."""
        return differences(self.reproduction, self.requested)


@dataclass
class Outcome:
    """The tables of a reproduction, its pictures, and the reasons for what could not be made.

    `rows` is the number of printed numbers that have a row in the folder `rows`, and `claims` are the lines on claims;
    `other_data` says why runs of other data than the paper's have no rows there.
    `failed` are the runs that failed, with the reason, and `signal` is the signal that asked to stop, or 0.
    """

    tables: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    nothing: bool = False
    rows: int = 0
    other_data: str = ""
    claims: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    signal: int = 0


def reproduce(
    order: Order,
    out: Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
    command: str = "",
    say: Callable[[str], None] = terminal.say,
) -> Outcome:
    """Train the runs of an order into `out`, and write its tables, analyses and pictures there.

    Runs without their data are left out, and `say` is called with the reason. Runs that an earlier call has trained are
    not trained again. They are used even if this call does not ask for them. `jobs` and `cluster` are those of
    `execute`. Raises `ConfigError` for unknown labels and settings, and if `out` holds runs at another scale or with
    other settings.
    """
    check_folder(out)
    sweep, missing = with_data(order.requested, order.data)
    order.check_runs(out)
    for line in dict.fromkeys(missing.values()):
        say(f"left out: {line}")
    outcome = Outcome(nothing=not sweep.runs)
    if sweep.runs:
        executed = execute(sweep, out, jobs, progress, cluster)
        missing |= executed.failed
        outcome.failed = executed.failed
        outcome.signal = executed.signal
    with locked(out, wait=say):  # another call may train other runs into the same folder
        results = order.results(out, missing)
        for name, filled in _tables(order.reproduction, results, order.note()):
            table = filled | {"command": command}
            _write(out, name, table)
            outcome.tables.append(table)
        outcome.other_data = _other_data(order, results)
        outcome.rows = _rows(order, results, command)
        if not outcome.signal and not order.cells:
            job = Job(command, outcome.missing.append, progress)
            outcome.pictures = _figures(order, results, job)
            outcome.claims = _claims(order, results, command)
    return outcome


def _has_ledger(order: Order) -> bool:
    """Whether a ledger has its cells: of a reader's own reproduction none has."""
    return order.reproduction.name in reproductions()


def _other_data(order: Order, results: Results) -> str:
    """Why no ledger takes what the runs gave, as they are of other data than the paper's; "" if they are not."""
    if not _has_ledger(order):
        return ""
    runs = [settings_of(run) for run in _finished(results)]
    return other_data(runs, data_of(papers_settings(order.reproduction)))


def _finished(results: Results) -> list[PlannedRun]:
    return [run for run in results.sweep.runs if run.name in results.finished]


def _rows(order: Order, results: Results, command: str) -> int:
    """Write what the runs gave for each number that a paper prints into `rows`, for a ledger. Returns how many."""
    if not _has_ledger(order):
        return 0
    wanted = order.cells or cells(order.reproduction)
    source = without_folders(command)
    return collect(order.reproduction, results, Ledger(results.out / ROWS), wanted, str(date.today()), source)


def without_folders(command: str) -> str:
    """The command without the folders of the data: who takes a row from somebody else has them in another place."""
    words = shlex.split(command)
    if "--data" in words:
        place = words.index("--data")
        del words[place : place + 2]
    for place in range(1, len(words)):
        if words[place - 1] == "--set" and words[place].startswith("data"):
            words[place] = PATH.sub(r"\1DIR/", words[place])
    return shlex.join(words)


def _claims(order: Order, results: Results, command: str) -> list[str]:
    """Judge the claims whose evidence is in the runs, and write it into `rows`. Returns a line for each.

    Evidence of data that no paper has, as at scale tiny, is judged and not written.
    """
    runs = _finished(results)
    if not runs or any(stopped_early(results, run) for run in runs):
        return []
    settings: list[dict[str, str]] = []
    for run in runs:
        words = settings_of(run)
        if words not in settings:
            settings.append(words)
    row = {"runs": settings, "source": without_folders(command), "date": str(date.today())}
    of_papers_data = not data_of_no_paper(settings)
    lines = []
    ledger = Ledger(results.out / ROWS)
    for paper, by_name in claims().items():
        for claim in by_name.values():
            if claim.of != order.reproduction.name or claim.measure is None:
                continue
            evidence = claim.measure(results)
            if not any(evidence.values()):
                continue
            finding = claim.judged(evidence)
            if finding.words == NO_NUMBERS:
                continue
            subject = claim.subject(results) if claim.subject else ""
            setting = setting_of(order.reproduction, settings, subject)
            saved = {name: numbers.saved() for name, numbers in evidence.items()}
            if of_papers_data:
                ledger.enter_claim(paper, claim, row | {"evidence": saved, "subject": subject, "setting": setting})
            lines.append(f"{paper} {claim.name} ({claim.where}): {claim.says} Here: {finding}")
    return lines


def _tables(reproduction: Reproduction, results: Results, note: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names of the tables of which something is known, and what they hold."""
    for table in reproduction.bound_tables:
        filled = table.filled(results)
        if filled["rows"]:
            filled["note"] = "\n".join([*filled["missing"], *filled["chosen"], note])
            yield table.name, filled


def _figures(order: Order, results: Results, job: Job) -> list[Path]:
    """Draw the figures; their files."""
    files = []
    for figure in order.reproduction.figures_at(order.scale):
        files += figure.draw(results, job)
    return files


def with_data(sweep: Sweep, folder: Path) -> tuple[Sweep, dict[str, str]]:
    """The runs of a sweep whose data are there, and by name why the other runs are left out.

    Data without a `path`, or with `data/NAME`, are those in `folder`; others are where they are said to be.
    """
    runs = []
    missing = {}
    for run in sweep.runs:
        data = run.experiment.data
        name = REGISTRIES["datasets"].name_of(data)
        place = (folder / name).resolve()
        if getattr(data, "path", None) not in ("", f"data/{name}"):
            runs.append(run)
        elif place.exists():
            data = replace(data, path=str(place))  # type: ignore[type-var]
            runs.append(replace(run, experiment=replace(run.experiment, data=data)))
        else:
            missing[run.name] = f"{name} is not there: put it into {folder / name} (docs/how-to/datasets.md says how)"
    return replace(sweep, runs=runs), missing


def differences(reproduction: Reproduction, here: Sweep) -> list[str]:
    """The settings in which runs differ from the runs of the full scale with the same labels, one line per key."""
    only = []
    for axis, labels in here.axes.items():
        only += [f"{axis}={label}" for label in labels if label in reproduction.labels[axis]]
    full = reproduction.plan("full", only)
    paper = {tuple(run.labels.items()): run for run in full.runs}
    # Dictionaries instead of sets: their keys keep the order of the runs.
    papers_values: dict[str, dict[str, None]] = {}
    our_values: dict[str, dict[str, None]] = {}
    for run in here.runs:
        counterpart = paper.get(tuple(run.labels.items()))
        if counterpart is None:
            continue
        theirs = dict(flat(counterpart.experiment.table()))
        ours = dict(flat(run.experiment.table()))
        for key in sorted(theirs.keys() | ours.keys()):
            differs = theirs.get(key) != ours.get(key)
            if differs and changes_numbers(key) and _has_meaning(key, theirs, ours):
                papers_values.setdefault(key, {})[_shown(theirs, key)] = None
                our_values.setdefault(key, {})[_shown(ours, key)] = None
    lines = []
    for key, values in our_values.items():
        lines.append(f"{key} {_few(values)} (full scale: {_few(papers_values[key])})")
    return lines


def _has_meaning(key: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether a setting is one of both: an option of the one method or data set alone is said by its name."""
    if key in theirs and key in ours:
        return True
    name = f"{key.rpartition('.')[0]}.name"
    return theirs.get(name) == ours.get(name)


def _shown(table: Mapping[str, Any], key: str) -> str:
    """A setting's value in words."""
    return show(table[key]) if key in table else "left out"


def _few(values: Iterable[str]) -> str:
    """The first values of some."""
    words = list(values)
    if len(words) > MOST_VALUES:
        return ", ".join(words[:MOST_VALUES]) + ", ..."
    return ", ".join(words)


def _write(out: Path, name: str, table: Mapping[str, Any]) -> None:
    """Write a table as JSON and as Markdown."""
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / f"{safe(name)}.json", table)
    replace_file(folder / f"{safe(name)}.md", markdown(table).encode())


def markdown(table: Mapping[str, Any]) -> str:
    """A filled table as Markdown: its title, the table, its note, and the command that made it."""
    lines = [f"# {table['title']}", ""]
    for row in [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]:
        cells = [str(cell).replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    note = table["note"].replace("\n", "\n\n")
    lines += ["", note, "", f"    {table['command']}", ""]
    return "\n".join(lines)
