"""A reproduction: a paper's table or figure as a sweep at several scales, and the tables and figures of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from ...basics.errors import check
from ..config import ConfigError, NetworkExperiment
from ..config.errors import check_known, prefixed
from ..config.files import TomlTable, merged, read
from ..config.words import shown
from ..sweeps import PlannedRun, Sweep
from ..sweeps import parse as sweep
from ..sweeps.axes import KEYS as SWEEP
from ..sweeps.axes import ChangedTable, label_of, named_axis
from .figures import Figure
from .pick import OWN, AxisLabels, Labels, Pick, keyed, listed, mapping, text
from .tables import Table

SCALES = {
    "full": "the paper's own setting",
    "small": "the same runs, fewer and shorter: an hour or so on two cores",
    "tiny": "a check of the structure on scikit-learn's digits: about a minute",
}
KEYS = {
    **SWEEP,
    "paper": "the paper's name",
    "shows": "what the table or figure shows",
    "note": "what the paper states, what is doubtful, and what is assumed here",
    "without": "picks of runs that the paper does not have; they are left out",
    "changes": "settings for the runs that a pick selects, after all axes, in order",
    "scales": f"how the reproduction is made smaller, by scale: {', '.join(SCALES)}",
    "tables": "the tables that are made from the runs",
    "figures": "the figures that are made from the runs",
}
"""The keys of a reproduction's file, and what they mean."""
CHANGE = {"where": "a pick: the runs that are changed", "set": "settings, as in an experiment file"}
"""The keys of one of `changes`, and what they mean."""


@dataclass(frozen=True)
class Change:
    """Settings for the runs that `where` selects, applied after all axes. They may depend on more than one axis."""

    where: Pick
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, table: Any, axes: AxisLabels, place: str) -> Change:
        given = keyed(table, CHANGE, place)
        settings = mapping(given.get("set", {}), f"{place}.set")
        return cls(Pick.of(given.get("where", {}), axes, f"{place}.where"), settings)


@dataclass(frozen=True)
class Scale:
    """How a reproduction is made smaller.

    - `only`: the labels that stay on an axis; all labels of other axes stay
    - `values`: other values of an axis
    - `changes`: further changes of the runs, after those of the file
    - `figures`: other settings of a figure, by its name
    """

    only: Mapping[str, list[str]] = field(default_factory=dict)
    values: Mapping[str, list[Any]] = field(default_factory=dict)
    changes: tuple[Mapping[str, Any], ...] = ()
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Any, place: str) -> Scale:
        given = keyed(table, [f.name for f in fields(cls)], place)
        only, values, figures = (mapping(given.get(key, {}), f"{place}.{key}") for key in ("only", "values", "figures"))
        kept = {axis: [str(label) for label in labels] for axis, labels in only.items()}
        return cls(kept, values, tuple(given.get("changes", ())), figures)


@dataclass(frozen=True)
class Reproduction:
    """The reproduction of one table or figure.

    `paper` is the paper's name. `shows` says what the table or figure shows. `note` says what the paper states, what is
    doubtful, and what we have assumed. `content` is the content of the file: the tables of a sweep (`base`, `axes`,
    `zip`), the picks of runs that are left out (`without`), the `changes`, which are applied in order to the runs that
    they select, the `scales`, and the `tables` and `figures` that are made from the runs. Every run keeps the states
    that its figures look at.
    """

    name: str
    title: str
    paper: str
    shows: str
    note: str
    content: Mapping[str, Any] = field(repr=False)
    folder: Path = Path()

    @classmethod
    def load(cls, file: Path) -> Reproduction:
        """The reproduction in a TOML file. Raises `ConfigError`, which names the file."""
        with prefixed(file.name):
            return cls.parse(file.stem, read(file), file.parent)

    @classmethod
    def parse(cls, name: str, content: Mapping[str, Any], folder: Path = Path()) -> Reproduction:
        """The reproduction in the content of a file in `folder`. Raises `ConfigError` if it has an error."""
        keyed(content, KEYS, "")
        title, paper, shows, note = (_words(content, key) for key in ("title", "paper", "shows", "note"))
        reproduction = cls(name, title, paper, shows, note, content, folder)
        for axis in set(reproduction.axes) & set(OWN):
            raise ConfigError(f"axes: no axis can be called {axis}")
        for size, scale in reproduction.scales.items():
            check_known(size, SCALES, "scales: there is no scale")
            for axis in (*scale.only, *scale.values):
                check_known(axis, reproduction.axes, f"scales.{size}: there is no axis")
        for key in ("tables", "figures"):
            names = [str(table.get("name", name)) for _, table in reproduction._each(key)]
            for twice in {each for each in names if names.count(each) > 1}:
                raise ConfigError(f"{key}: two are called {twice}: give each a name of its own")
        figures = [figure for scale in reproduction.scales for figure in reproduction.figures(scale)]
        if not reproduction.tables and not figures:
            raise ConfigError("there is neither [[tables]] nor [[figures]]: nothing is made of its runs")
        return reproduction

    @cached_property
    def axes(self) -> AxisLabels:
        """The labels of each axis, at full scale."""
        given = mapping(self.content.get("axes", {}), "axes")
        return {axis: _labels(values, axis) for axis, values in given.items()}

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """The scales of the reproduction: `full`, and those in the file."""
        given = mapping(self.content.get("scales", {}), "scales")
        return {"full": Scale()} | {name: Scale.of(table, f"scales.{name}") for name, table in given.items()}

    @cached_property
    def tables(self) -> list[Table]:
        """The tables that are made from the runs."""
        return [Table.of(t, self.axes, self.name, place) for place, t in self._each("tables")]

    def figures(self, scale: str = "full") -> list[Figure]:
        """The figures that are made from the runs at a scale."""
        tables = {str(table.get("name", self.name)): (place, table) for place, table in self._each("figures")}
        over = self.scales[scale].figures
        for name in over:
            check_known(name, tables, f"scales.{scale}.figures: there is no figure")
        return [
            Figure.of({**table, **over.get(name, {})}, self.axes, self.name, place)
            for name, (place, table) in tables.items()
        ]

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
        check(scale in self.scales, "scale", scale, f"must be one of {', '.join(self.scales)}")
        chosen, only = self.scales[scale], list(only)
        axes = {axis: chosen.values.get(axis, own) for axis, own in self.content.get("axes", {}).items()}
        named = {named_axis(choice.partition("=")[0], axes) for choice in only}
        kept = [f"{axis}={label}" for axis, labels in chosen.only.items() if axis not in named for label in labels]
        content = {key: self.content[key] for key in SWEEP if key in self.content} | {"axes": axes}
        labels = {axis: [*own, *_labels(axes[axis], axis)] for axis, own in self.axes.items()}
        changed = self._changed(scale, labels)
        found = sweep(content, self.folder, [*kept, *only], overrides, own_code, changed)
        figures = self.figures(scale)
        made: list[Table | Figure] = [*self.tables, *figures]
        _check_networks(made, found.runs)
        return replace(found, runs=[_keeping(run, figures) for run in found.runs])

    def _changed(self, scale: str, labels: AxisLabels) -> ChangedTable:
        """What makes of a run's table that of the paper: None for a run `without`, and otherwise all `changes`."""
        without = [Pick.of(table, labels, place) for place, table in self._each("without")]
        changes = [Change.of(table, labels, place) for place, table in self._each("changes")]
        for i, table in enumerate(self.scales[scale].changes):
            changes.append(Change.of(table, labels, f"scales.{scale}.changes[{i}]"))

        def changed(run: Labels, table: TomlTable) -> TomlTable | None:
            if any(pick.takes(run) for pick in without):
                return None
            return reduce(merged, (change.settings for change in changes if change.where.takes(run)), table)

        return changed

    def _each(self, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for i, table in enumerate(listed(self.content.get(key, []), key)):
            yield f"{key}[{i}]", mapping(table, f"{key}[{i}]")


def _labels(values: Any, axis: str) -> list[str]:
    if not isinstance(values, list | Mapping):
        raise ConfigError(f"axes.{axis} = {shown(values)}: must be a list of values, or a table of labels")
    return [label_of(value) for value in values]


def _words(content: Mapping[str, Any], key: str) -> str:
    return " ".join(text(content.get(key, ""), key).split())


def _check_networks(made: Sequence[Table | Figure], runs: Sequence[PlannedRun]) -> None:
    """Raise `ConfigError` if a table or a figure counts the client trips of a run without a network."""
    without = [run for run in runs if not isinstance(run.experiment, NetworkExperiment)]
    for each in made:
        for run in without:
            if any(pick.takes(run.labels) for pick in each.picks_on_networks):
                raise ConfigError(f"{each.name} counts client trips, and the run {run.name} has no network")


def _keeping(run: PlannedRun, figures: Iterable[Figure]) -> PlannedRun:
    """The run, which also keeps the states that figures look at."""
    experiment = run.experiment
    looks = [look for figure in figures for look in figure.looks.values() if look.where.takes(run.labels)]
    keep = {*experiment.checkpoint.keep, *(round for look in looks for round in look.rounds(experiment.rounds))}
    checkpoint = replace(experiment.checkpoint, keep=tuple(sorted(keep)))
    return replace(run, experiment=replace(experiment, checkpoint=checkpoint)) if looks else run
