"""A sweep file: a base experiment and the axes along which it varies. They give the experiments of all runs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from ...settings.errors import shortened
from ...system.files import flat
from ..config import ConfigError, Experiment
from ..config import parse as experiment
from ..config.errors import check_known, prefixed
from ..config.files import KEY, TomlTable, merged, named, put, read, without_others
from ..config.network import NetworkExperiment
from ..config.words import show, shown

KEYS = {
    "title": "what tables and pages call the sweep",
    "base": "the path of an experiment file, relative to this file, or the content of one as a table",
    "axes": "what varies: a dotted key of the experiment with a list of its values, or a name with a table of settings "
    "for each label; later axes override earlier ones",
    "zip": "lists of axes that vary together: their first labels form one run, and so on; all other axes are combined "
    "in every way",
}
"""The keys of a sweep file, and what they mean."""
MOST_RUNS = 10_000
LONGEST_NAME = 200
"""Bytes of a run's name, which is that of its folder; file systems take 255."""


@dataclass(frozen=True, eq=False)
class SweepAxis:
    """An axis of a sweep: by label, the values of a `key` of the experiment, or, without a key, tables of settings."""

    settings: Mapping[str, Any]
    key: str | None = None

    def applied(self, table: TomlTable, label: str) -> TomlTable:
        """The table of an experiment with the label's value or settings.

        Another thing by its name, as in `server.name`, takes the place of the whole table.
        """
        if self.key is None:
            return merged(table, self.settings[label])
        value = put({}, self.key, self.settings[label])
        return put(without_others(table, value, {}), self.key, self.settings[label])

    @property
    def sets(self) -> set[str]:
        """The dotted keys that it sets, each with a plain value."""
        if self.key is not None:
            return {self.key}
        keys = set()
        for settings in self.settings.values():
            keys |= {key for key, _ in flat(settings)}
        return keys

    def keys_of(self, label: str) -> list[str]:
        """The dotted keys that the label sets, but not those of a thing that it chooses itself."""
        settings = self.settings[label]
        if self.key is not None:
            settings = put({}, self.key, settings)
        keys = [key for key, _ in flat(settings)]
        names = [key for key in keys if key.endswith(".name")]
        kept = []
        for key in keys:
            if not any(key.startswith(name.removesuffix("name")) for name in names if name != key):
                kept.append(key)
        return kept

    def part(self, label: str) -> str:
        """The part of a run's folder name for a label: the label, after its key if the axis has one."""
        word = re.sub(r"[^\w.+=-]+", "-", label)
        if self.key:
            return f"{short(self.key)}={word}"
        return word.strip("-.") or "-"


Axes = Mapping[str, SweepAxis]
ChangedTable = Callable[[Mapping[str, str], TomlTable], TomlTable | None]
"""The labels and the table of a run, to the table to train; None if there is no such run."""


def short(axis: str) -> str:
    """The axis as it stands in the names of runs: `lr` for `local.lr`."""
    return axis.rpartition(".")[2]


def named_axis(name: str, axes: Iterable[str]) -> str:
    """The axis that a user means: the one of this name, or else the only one that is `short` for it, or the name."""
    axes = list(axes)
    if name in axes:
        return name
    meant = [axis for axis in axes if short(axis) == name]
    return meant[0] if len(meant) == 1 else name


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a sweep: the name of its folder, its label on each axis, and its experiment."""

    name: str
    labels: dict[str, str]
    experiment: Experiment


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep: its title, the labels of each axis, and the runs; `others` are the names of those that are left out."""

    title: str
    axes: dict[str, list[str]]
    runs: list[PlannedRun]
    others: tuple[str, ...] = ()

    def part(self, number: int, of: int) -> Sweep:
        """Part `number` of `of`, from 1: runs that follow each other, since these share most rounds.

        Raises `ConfigError` if it has no run.
        """
        count = len(self.runs)
        first = (number - 1) * count // of
        end = number * count // of
        if first == end:
            raise ConfigError(f"--part {number}/{of}: has no run, as there are {count}: take at most {count} parts")
        left_out = [run.name for run in (*self.runs[:first], *self.runs[end:])]
        return replace(self, runs=self.runs[first:end], others=(*self.others, *left_out))


def load(path: Path | str, only: Iterable[str] = (), overrides: Iterable[str] = (), own_code: bool = False) -> Sweep:
    """The sweep in a TOML file (see `parse`). Raises `ConfigError`, which names the file."""
    path = Path(path)
    with prefixed(path):
        table = read(path)
        overrides = list(overrides)
        _check_free(table, overrides)
        return parse(table, path.parent, only, overrides, own_code)


def all_or(requested: Sweep, every: Callable[[], Sweep]) -> Sweep:
    """All runs, which `every` gives; only those that are `requested` if the overrides don't fit the others."""
    try:
        return every()
    except ConfigError:
        return requested


def _check_free(table: TomlTable, overrides: Iterable[str]) -> None:
    """Raise `ConfigError` if an override sets what an axis sets, because its labels would lie."""
    axes = _axes(table["axes"]) if "axes" in table else {}
    for override in overrides:
        key = override.partition("=")[0].strip()
        for name, axis in axes.items():
            if any(_sets_part_of(key, set_by_axis) for set_by_axis in axis.sets):
                advice = f"the axis {name} sets it: leave it out, or change the axis in the file; --only chooses labels"
                raise ConfigError(f"--set {shortened(key)}: {advice}")


def _sets_part_of(key: str, other: str) -> bool:
    """Whether setting `key` changes the setting `other`: one of them is the other, or lies in it.

    Another `name` is another thing: it changes the whole table that it stands in.
    """
    table = key.removesuffix("name") if key.endswith(".name") else f"{key}."
    return f"{other}.".startswith(table) or f"{key}.".startswith(f"{other}.")


def parse(
    table: TomlTable,
    folder: Path = Path(),
    only: Iterable[str] = (),
    overrides: Iterable[str] = (),
    own_code: bool = False,
    changed: ChangedTable = lambda labels, table: table,
) -> Sweep:
    """The sweep that the content of a file describes.

    `base` is an experiment's table, or the path of its file relative to `folder`. Each of the `axes` is either a dotted
    key of the experiment with a list of its values, or a name with a table of settings for each label. Axes that are
    listed together in `zip` vary together: their first labels form one run, and so on. All other axes are combined in
    every way. Later axes override earlier ones, and `overrides` such as `"rounds=3"` override all. `only` has entries
    `"axis=label"`; it leaves out all other labels of these axes. The axis `local.lr` may be called `lr` there. With
    `own_code`, experiments may name code outside fedsash. `changed` gets the labels and the table of each run, before
    the overrides; it gives the table to train, or None to leave the run out.

    Raises `ConfigError`. If only one run is wrong, the message names the run.
    """
    unknown = [key for key in table if key not in KEYS]
    if unknown and "axes" not in table:
        raise ConfigError("this is an experiment, without axes: train it with fedsash run")
    if unknown:
        raise ConfigError(f"unknown key {shortened(unknown[0])}; a sweep has {', '.join(KEYS)}")
    axes = _axes(table.get("axes"))
    base = _named(_base(table.get("base", {}), folder))
    chosen = _only(axes, only)
    zipped = _zipped(table.get("zip", []), axes)
    overrides = list(overrides)
    runs = []
    for labels in _combinations(axes, zipped, chosen):
        applied = changed(labels, _applied(base, axes, labels))
        if applied is not None:
            runs.append(_run(_folder_of(axes, labels), labels, applied, overrides, own_code))
    if not runs:
        raise ConfigError("no run is left: there is none with these labels")
    for name, count in Counter(run.name for run in runs).items():
        if count > 1:
            raise ConfigError(f"axes: two runs would have the folder {name}; name their labels more differently")
    kept = {}
    for name, axis in axes.items():
        kept[name] = [label for label in axis.settings if _kept({name: label}, chosen)]
    others: tuple[str, ...] = ()
    if chosen:
        names = {run.name for run in runs}
        others = tuple(name for name in _names_of_all(base, axes, zipped, changed) if name not in names)
    return Sweep(str(table.get("title", "")), kept, runs, others)


def _names_of_all(base: TomlTable, axes: Axes, zipped: list[list[str]], changed: ChangedTable) -> list[str]:
    """The names of all runs, as far as there can be such runs."""
    names = []
    with suppress(ConfigError):
        for labels in _combinations(axes, zipped, {}):
            if changed(labels, _applied(base, axes, labels)) is not None:
                names.append(_folder_of(axes, labels))
    return names


def _base(base: Any, folder: Path) -> TomlTable:
    """The base as a table: what the file holds, if it is the path of one."""
    if isinstance(base, str):
        with prefixed(folder / base):
            return read(folder / base)
    if not isinstance(base, Mapping):
        raise ConfigError(f"base = {shown(base)}: must be a table, [base], or the path of an experiment file")
    return base


def _named(base: TomlTable) -> TomlTable:
    """The base with the names that its tables leave out, so that an axis may name the same thing and set more of it.

    An engine is chosen by its keys, and the arguments of a function of one's own are its author's.
    """
    if "built_by" in base:
        return base
    on_network = "network" in base or "scheduler" in base
    default = NetworkExperiment() if on_network else Experiment()
    return named(base, {key: value for key, value in default.table().items() if key != "engine"})


def _axes(table: Any) -> dict[str, SweepAxis]:
    """The axes of a file. Raises `ConfigError` if there are none."""
    if not isinstance(table, Mapping) or not table:
        raise ConfigError("axes is missing: must be a table such as [axes] with seed = [0, 1, 2]")
    return {name: _axis(name, values) for name, values in table.items()}


def label_of(value: Any) -> str:
    """The label of a value in an axis's list."""
    return value if isinstance(value, str) else show(value)


def _axis(name: str, values: Any) -> SweepAxis:
    """An axis of a file. Raises `ConfigError` for values that are neither a list of a key's nor tables by label."""
    if isinstance(values, list) and values and KEY.fullmatch(name):
        labels = [label_of(value) for value in values]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"axes.{name} = {shown(values)}: must not name a value twice")
        return SweepAxis(dict(zip(labels, values, strict=True)), name)
    if isinstance(values, Mapping) and values and all(isinstance(settings, Mapping) for settings in values.values()):
        return SweepAxis(values)
    if isinstance(values, Mapping):
        for inner, value in values.items():
            if inner and isinstance(value, list):  # TOML reads local.lr = [...] without quotes as a table in a table
                key = f"{name}.{inner}"
                raise ConfigError(f'axes.{key}: a dotted key is one name here, in quotes: "{key}" = {shown(value)}')
    requirement = "a list of values of the key that the axis is called after, or a table of settings for each label"
    raise ConfigError(f"axes.{name} = {shown(values)}: must be {requirement}")


def _zipped(groups: Any, axes: Axes) -> list[list[str]]:
    """The axes in groups: axes that vary together, and every other axis alone."""
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise ConfigError(
            f'zip = {shown(groups)}: must be a list of lists of axes, such as [["local.lr", "local.batch"]]'
        )
    for group in groups:
        for axis in group:
            check_known(axis, axes, "zip: there is no axis")
        labels = {axis: len(axes[axis].settings) for axis in group}
        if len(set(labels.values())) > 1:
            raise ConfigError(f"zip: axes that go together need as many labels each; there are {shown(labels)}")
    counts = Counter(axis for group in groups for axis in group)
    for axis, count in counts.items():
        if count > 1:
            raise ConfigError(f"zip: {axis} is in it twice")
    group_of: dict[str, list[str]] = {}
    for group in groups:
        group_of |= dict.fromkeys(group, group)
    ordered: list[list[str]] = []
    for axis in axes:
        group = group_of.get(axis, [axis])
        if group not in ordered:
            ordered.append(group)
    return ordered


def _combinations(
    axes: Axes, zipped: Sequence[Sequence[str]], chosen: Mapping[str, set[str]]
) -> Iterator[dict[str, str]]:
    """Every combination of the labels that are kept, in the order of the axes. Raises `ConfigError` for too many."""
    choices: list[list[dict[str, str]]] = []
    for group in zipped:
        of_group = []
        for row in zip(*(axes[axis].settings for axis in group), strict=True):
            labels = dict(zip(group, row, strict=True))
            if _kept(labels, chosen):
                of_group.append(labels)
        choices.append(of_group)
    count = math.prod(len(of_group) for of_group in choices)
    if count > MOST_RUNS:
        raise ConfigError(f"axes: they make {count:,} runs, and a sweep has at most {MOST_RUNS:,}", "axes")
    for combined in product(*choices):
        run: dict[str, str] = {}
        for labels in combined:
            run |= labels
        yield {axis: run[axis] for axis in axes}


def _only(axes: Axes, only: Iterable[str]) -> dict[str, set[str]]:
    """For each axis in `only`, the labels that are kept."""
    chosen: dict[str, set[str]] = {}
    for choice in only:
        axis, equals, label = choice.partition("=")
        if not equals:
            raise ConfigError(f"--only {shortened(choice)}: must be AXIS=LABEL, such as seed=0")
        axis = named_axis(axis, axes)
        check_known(axis, axes, "--only: there is no axis")
        check_known(label, axes[axis].settings, f"--only: axis {axis} has no label")
        chosen.setdefault(axis, set()).add(label)
    return chosen


def _kept(labels: Mapping[str, str], chosen: Mapping[str, set[str]]) -> bool:
    """Whether all labels are chosen; on an axis for which none is, all are."""
    return all(axis not in chosen or label in chosen[axis] for axis, label in labels.items())


def _applied(base: TomlTable, axes: Axes, labels: Mapping[str, str]) -> TomlTable:
    """The base with the label's value or settings of each axis, in order.

    Raises `ConfigError` if a later axis chooses another thing by its name, and so takes away what an earlier one set.
    """
    table = base
    keys = {key for key, _ in flat(base)}
    earlier = list[str]()
    for axis, label in labels.items():
        keys_before = keys
        table = axes[axis].applied(table, label)
        keys = {key for key, _ in flat(table)}
        if not keys_before <= keys:
            for name in earlier:
                _check_kept(axes[name].keys_of(labels[name]), keys_before, keys, name, axis)
        earlier.append(axis)
    return table


def _check_kept(keys: Iterable[str], before: set[str], after: set[str], name: str, axis: str) -> None:
    """Raise `ConfigError` for a key of the axis `name` that a table had before the later `axis`, and has not after."""
    for key in keys:
        if _has(before, key) and not _has(after, key):
            reason = f"lost, because {axis} chooses another thing after it: put axes.{name} behind axes.{axis}"
            raise ConfigError(f"axes.{name}: {key} is {reason}")


def _has(keys: Iterable[str], key: str) -> bool:
    """Whether there is a value at a dotted key, or below it, among the dotted keys of a table's values."""
    return any(f"{each}.".startswith(f"{key}.") for each in keys)


def _folder_of(axes: Axes, labels: Mapping[str, str]) -> str:
    """The name of the run's folder. Raises `ConfigError` if no file system takes it."""
    name = ",".join(axes[axis].part(label) for axis, label in labels.items())
    if len(name.encode()) > LONGEST_NAME:
        raise ConfigError(f"axes: the folder {shortened(name)} would have a name of more than {LONGEST_NAME} bytes")
    return name


def _run(name: str, labels: dict[str, str], table: TomlTable, overrides: Sequence[str], own_code: bool) -> PlannedRun:
    """A run. Raises `ConfigError`, which names it."""
    with prefixed(name):
        return PlannedRun(name, labels, experiment(table, overrides, own_code))
