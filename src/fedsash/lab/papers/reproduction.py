"""A reproduction: a paper's table or figure as a sweep at several scales, and the tables and figures of its runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from ...settings.errors import SettingError, check
from ...system.files import flat
from ..config import ConfigError, NetworkExperiment
from ..config.files import TomlTable, merged
from ..sweeps import PlannedRun, Sweep
from ..sweeps import parse as sweep
from ..sweeps.axes import label_of, named_axis
from .figures import Figure
from .numbers import Numbers
from .pick import AxisLabels, Labels, Pick, check_axis, hint
from .tables import BoundTable, Table

SCALES = {
    "full": "the paper's own setting",
    "small": "the same runs, fewer and shorter, with three seeds: hours on two cores",
    "tiny": "a check of the structure on scikit-learn's digits: about a minute",
}
Settings: TypeAlias = Mapping[str, Any]
"""Settings of an experiment, as in its file: `{"local": {"lr": 0.1}}`."""
Changes: TypeAlias = Callable[[Labels], Iterable[Settings]]
"""The settings that a run has beside those of its axes, by its labels: each is put on top of those before it."""
Axis: TypeAlias = Sequence[Any] | Mapping[str, Settings]
"""The values of a key of the experiment, or settings by label."""
NO_AXES = ("model", "statistic")
"""What an axis can't be called, since these are words of a `pick`."""


def unchanged(run: Labels) -> Iterable[Settings]:
    """No further settings."""
    return ()


def never(run: Labels) -> bool:
    """False: no run is left out."""
    return False


@dataclass(frozen=True)
class Scale:
    """How a reproduction is made smaller.

    - `only`: the labels that stay on an axis; all labels of other axes stay
    - `values`: other values of an axis
    - `changes`: further settings of a run, after those of the reproduction
    - `figures`: other settings of a figure's study, by the figure's name
    """

    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    changes: Changes = unchanged
    figures: Mapping[str, Settings] = field(default_factory=dict)


@dataclass(frozen=True)
class Note:
    """A note on the runs that `of` selects: it stands below tables only if some of them were asked for."""

    text: str
    of: Pick


@dataclass(frozen=True)
class Reproduction:
    """The reproduction of one table or figure, or of several that are views of the same runs.

    - `name`: what the command line calls it; `title`, `paper`: of the table or figure
    - `shows`: what the table or figure shows
    - `note`: what the paper states, what is doubtful, and what is assumed here; `notes`: the same of some runs alone
    - `base`: an experiment, as the content of its file
    - `axes`: what varies, as in a sweep: the values of a key, or settings by label. Later axes override earlier ones
    - `changes`: the settings that depend on more than one axis, after all axes
    - `without`: whether the paper has no run with these labels; it is left out
    - `tables`, `figures`: what is made of the runs. Every run keeps the states that its figures look at
    - `scales`: how it is made smaller

    `added` gives another reproduction with a label of one's own on an axis, and so a row, a column or a line more.
    """

    name: str
    title: str
    paper: str
    shows: str
    base: Settings = field(repr=False)
    axes: Mapping[str, Axis] = field(repr=False)
    note: str = field(default="", repr=False)
    notes: Sequence[Note] = field(default=(), repr=False)
    changes: Changes = field(default=unchanged, repr=False)
    without: Callable[[Labels], bool] = field(default=never, repr=False)
    tables: Sequence[Table] = field(default=(), repr=False)
    figures: Sequence[Figure] = field(default=(), repr=False)
    scales: Mapping[str, Scale] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        valid = re.fullmatch(r"[\w-]+", self.name) is not None
        check(valid, "Reproduction.name", self.name, "must be letters, digits, _ and -")
        for axis, values in self.axes.items():
            check(axis not in NO_AXES, f"{self.name}.axes", axis, "no axis can be called so")
            listed = isinstance(values, Mapping | Sequence) and not isinstance(values, str)
            check(listed, f"{self.name}.axes.{axis}", values, "must be a list of values, or settings by label")
        for size, scale in self.scales.items():
            check(size in SCALES, f"{self.name}.scales", size, f"must be one of {', '.join(SCALES)}")
            self._check_scale(scale, f"{self.name}.scales.{size}")
        for note in self.notes:
            note.of.check(self.labels, f"{self.name}.notes")
        names = [table.name for table in self.bound_tables]
        names += [figure.name for figure in self.figures]
        for name in names:
            check(names.count(name) == 1, self.name, name, "must be the name of one table or figure only")
        check(bool(names), self.name, (), "must have tables or figures: nothing is made of its runs")
        for figure in self.figures:
            figure.picks(self.labels)  # which raises for an axis or a label that there is not

    def note_on(self, runs: Sequence[Labels]) -> str:
        """The note, with those of `notes` that are on one of these runs."""
        texts = [self.note]
        for note in self.notes:
            if any(note.of.takes(run) for run in runs):
                texts.append(note.text)
        return " ".join(text for text in texts if text)

    def _check_scale(self, scale: Scale, place: str) -> None:
        """Raise `SettingError` for axes, labels, figures and settings of figures that there are not."""
        for axis in (*scale.only, *scale.values):
            check_axis(axis, self.labels, place)
        for axis, labels in scale.only.items():
            Pick({axis: tuple(labels)}).check(self._labels_at(scale), f"{place}.only")
        figures = {figure.name: figure for figure in self.figures}
        for name, settings in scale.figures.items():
            check(name in figures, f"{place}.figures", name, f"there is no such figure; {hint(name, list(figures))}")
            figures[name].changed(settings)

    @cached_property
    def labels(self) -> dict[str, list[str]]:
        """The labels of each axis, at full scale."""
        return _labels(self.axes)

    def _labels_at(self, scale: Scale) -> AxisLabels:
        """The labels of each axis from which a scale chooses."""
        return self.labels | _labels(scale.values)

    @cached_property
    def bound_tables(self) -> list[BoundTable]:
        """Its tables with the picks of their rows and columns."""
        return [table.bound(self.labels, self.name, self.title) for table in self.tables]

    def table(self, name: str = "") -> BoundTable:
        """The table of that name; the first one without."""
        if not name:
            return self.bound_tables[0]
        tables = {table.name: table for table in self.bound_tables}
        check(name in tables, "table", name, f"must be one of {', '.join(tables)}")
        return tables[name]

    def printed(self, table: str = "") -> Numbers:
        """The numbers that the paper prints in a table, by row, column and cell."""
        return self.table(table).printed()

    def added(self, axis: str, label: str, settings: Settings) -> Reproduction:
        """The reproduction with one more label on an axis, for a row, a column or a line of one's own.

            mine = ima.TABLE_1.added("method", "FedProx 1.0", {"method": {"name": "fedprox", "mu": 1.0}})

        Scales that list some labels of the axis have this one, too. Raises `SettingError` if no table or figure goes by
        the axis, so that nothing would be made of the runs.
        """
        check_axis(axis, self.labels, f"{self.name}.axes")
        by_label = self.axes[axis]
        if not isinstance(by_label, Mapping):
            raise SettingError("", f"{self.name}.axes", axis, "has values of a key: its labels have no settings")
        check(label not in by_label, f"{self.name}.axes.{axis}", label, "is there already")
        axes = {**self.axes, axis: {**by_label, label: settings}}
        scales = {}
        for name, scale in self.scales.items():
            only = dict(scale.only)
            if axis in only:
                only[axis] = [*only[axis], label]
            scales[name] = replace(scale, only=only)
        tables = [table.extended(axis, label) for table in self.tables]
        extended = replace(self, axes=axes, scales=scales, tables=tables)
        requirement = "no table or figure has a row, a column or a line for each of its labels"
        check(extended._goes_by(axis, label), f"{self.name}.axes", axis, requirement)
        return extended

    def _goes_by(self, axis: str, label: str) -> bool:
        """Whether a table or a figure has a number or a line of this label, or the best over its axis."""
        if any(table.best_over == axis for table in self.tables):
            return True
        picks: list[Pick] = []
        for table in self.bound_tables:
            picks += table.picks
        for figure in self.figures:
            picks += figure.picks(self.labels)
        return any(label in pick.where.get(axis, ()) for pick in picks)

    def at(self, scale: str) -> Scale:
        """The scale of that name. Raises `SettingError` if there is none."""
        known = {"full": Scale(), **self.scales}
        check(scale in known, "scale", scale, f"must be one of {', '.join(known)}")
        return known[scale]

    def figures_at(self, scale: str) -> list[Figure]:
        """The figures that are made from the runs at a scale."""
        settings = self.at(scale).figures
        return [figure.changed(settings.get(figure.name, {})) for figure in self.figures]

    def plan(
        self,
        scale: str = "full",
        only: Iterable[str] = (),
        overrides: Iterable[str] = (),
        own_code: bool = False,
    ) -> Sweep:
        """The sweep at a scale.

        `only` has entries `"axis=label"`. For the axes that it names, it replaces the labels of the scale. `overrides`
        such as `"rounds=50"` override everything else. With `own_code` they may name code outside fedsash. Raises
        `ConfigError` for unknown scales, labels and settings.
        """
        chosen = self.at(scale)
        axes: dict[str, Any] = {}
        for axis, values in self.axes.items():
            values = chosen.values.get(axis, values)
            axes[axis] = values if isinstance(values, Mapping) else list(values)
        choices = list(only)
        named = {named_axis(choice.partition("=")[0], axes) for choice in choices}
        of_scale = []
        for axis, labels in chosen.only.items():
            if axis not in named:
                of_scale += [f"{axis}={label}" for label in labels]
        content = {"title": self.title, "base": self.base, "axes": axes}

        def changed(run: Labels, table: TomlTable) -> TomlTable | None:
            return self._changed(run, table, chosen)

        planned = sweep(content, only=of_scale + choices, overrides=overrides, own_code=own_code, changed=changed)
        figures = self.figures_at(scale)
        self._check_networks(planned.runs)
        return replace(planned, runs=[_keeping(run, figures) for run in planned.runs])

    def stated(self) -> dict[str, frozenset[str]]:
        """The dotted keys of the settings that each run of the full scale has from here, by the run's name.

        All others are at their defaults.
        """
        keys: dict[tuple[str, ...], frozenset[str]] = {}

        def noted(run: Labels, table: TomlTable) -> TomlTable | None:
            changed = self._changed(run, table, Scale())
            if changed is not None:
                keys[tuple(run.values())] = frozenset(key for key, _ in flat(changed))
            return changed

        planned = sweep({"base": self.base, "axes": self.axes}, changed=noted)
        return {run.name: keys[tuple(run.labels.values())] for run in planned.runs}

    def _changed(self, run: Labels, table: TomlTable, scale: Scale) -> TomlTable | None:
        """A run's settings after all axes with what is changed for it; None if the paper has no such run."""
        if self.without(run):
            return None
        for settings in (*self.changes(run), *scale.changes(run)):
            table = merged(table, settings)
        return table

    def _check_networks(self, runs: Sequence[PlannedRun]) -> None:
        """Raise `ConfigError` if a table or a figure counts the client trips of a run without a network."""
        on_networks = {table.name: table.picks_on_networks for table in self.bound_tables}
        for figure in self.figures:
            on_networks[figure.name] = figure.picks_on_networks(self.labels)
        for run in runs:
            if isinstance(run.experiment, NetworkExperiment):
                continue
            for name, picks in on_networks.items():
                if any(pick.takes(run.labels) for pick in picks):
                    raise ConfigError(f"{name} counts client trips, and the run {run.name} has no network")


def _labels(axes: Mapping[str, Axis]) -> dict[str, list[str]]:
    """The labels of each axis."""
    labels = {}
    for axis, values in axes.items():
        labels[axis] = [label_of(value) for value in values]
    return labels


def prose(text: str) -> str:
    """A text over several lines as one line."""
    return " ".join(text.split())


def combined(settings: Settings, *changes: Settings) -> dict[str, Any]:
    """Settings with others on top of them, as an axis puts them: another name replaces a whole table."""
    table = dict(settings)
    for change in changes:
        table = merged(table, change)
    return table


def _keeping(run: PlannedRun, figures: Iterable[Figure]) -> PlannedRun:
    """The run, which also keeps the states that figures look at."""
    experiment = run.experiment
    rounds: set[int] = set()
    for figure in figures:
        rounds |= figure.rounds(run)
    if not rounds:
        return run
    rounds |= set(experiment.checkpoint.keep)
    checkpoint = replace(experiment.checkpoint, keep=tuple(sorted(rounds)))
    return replace(run, experiment=replace(experiment, checkpoint=checkpoint))
