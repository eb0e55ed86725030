"""Comparison over seeds: mean, standard deviation, and the gain with its confidence interval."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ...evaluation import OVER_CLIENTS, SPLITS, Curves, mean_or_none
from ...runs.client_results import WORDS
from ...runs.table import empty_table
from ...settings.errors import RunError, check, shortened, some
from ...system.files import flat
from ...tasks import Criterion
from ...tasks.criterion import UNKNOWN
from ..config.experiment import CARRIED_OUT, changes_numbers
from ..sweeps.axes import named_axis
from .collect import CollectedRun

if TYPE_CHECKING:
    from rich.table import Table

CONFIDENCE = 0.95
GAIN = f"gain ({CONFIDENCE:.0%} interval)"
"""The head of the gains in a table."""
EACH = "each"
"""Instead of a number over clients: the last result of each of them."""
_SEEDS = ("seed", "partition_seed", "options.seed")
_CHANGE_NO_NUMBER = ("seed", "options", *CARRIED_OUT)
"""Settings in which runs of one experiment may differ; but the engine's precision counts, and options beside a seed."""
Compared = tuple[dict[str, str], Curves, dict[str, float | None]]
"""The label of a client, if it is of one; the criterion without a target, and the split; the value of each model."""


@dataclass(frozen=True)
class Choice:
    """Why a model has its label on an axis: the best mean over the seeds on a split, of all but those `left_out`, which
    have fewer seeds than others."""

    axis: str
    split: str
    mean: float | None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One model over the seeds of its group. `values` are its results by seed, None if undefined.

    `mean` and `std` (dividing by n - 1) are None if a value is undefined; `std` is also None for a single seed. `gain`
    says how much better it is than the reference, the mean over the `pairs` of runs with one seed. `interval` is half
    the width of its confidence interval, t * s / sqrt(n) from the paired differences (Student); None for a single pair.
    `decided` says what the values are: their criterion without its target, and the split. With a `choice`, one of the
    labels was chosen, since the model is best there on another split.
    """

    labels: dict[str, str]
    model: str
    values: dict[int, float | None]
    decided: Curves
    gain: float | None = None
    interval: float | None = None
    pairs: int = 0
    choice: Choice | None = None

    @property
    def mean(self) -> float | None:
        return mean_or_none(self.values.values())

    @property
    def std(self) -> float | None:
        if self.mean is None or len(self.values) < 2:
            return None
        return stdev(value for value in self.values.values() if value is not None)

    def plain(self) -> dict[str, Any]:
        """The row as plain data."""
        plain: dict[str, Any] = {
            "labels": self.labels,
            "model": self.model,
            "metric": self.decided.criterion.name,
            "split": self.decided.split,
            "values": self.values,
            "mean": self.mean,
            "std": self.std,
            "gain": self.gain,
            "interval": self.interval,
            "pairs": self.pairs,
        }
        if self.choice is not None:
            plain["chosen_on"] = self.choice.split
            plain["chosen_mean"] = self.choice.mean
        return plain

    def mean_text(self, digits: int) -> str:
        """The mean and its standard deviation as text."""
        return self.decided.criterion.spread(self.mean, self.std, digits)

    def gain_text(self, digits: int) -> str:
        """The gain and half the width of its interval as text; with fewer pairs than seeds their number, too."""
        text = self.decided.criterion.spread(self.gain, self.interval, digits, sign="+")
        if 0 < self.pairs < len(self.values):
            text += f" ({self.pairs} of {len(self.values)})"
        return text


def compare(runs: Sequence[CollectedRun], against: str | None = None, of: str = "") -> list[Row]:
    """A row for each model of each group of runs that differ only in their seed.

    What is compared is the `last_mean` of the metric that decides, or with `of = "SPLIT/NUMBER"` a number over clients
    (see `client_results.over_last`), such as `"client_test/worst_tenth"`. With `of = "SPLIT/each"` it is the result of
    each client at the last evaluation, and each row is of one client. Clients without names are others with another
    seed, which deals the samples out: then each row is of one seed, too.

    The reference of a gain is the global model of the same run. With `against = "axis=label"`, it is the global model
    of the run that has this label and otherwise the same labels; the axis `local.lr` may be called `lr`. A run outside
    of a sweep has one axis, `run`, with the name of the first run in its group. Runs from Python are groups of their
    own: their folders do not say which of them differ only in their seed.

    Raises `ValueError` if there is no such number, axis or label, if two runs of a group have the same seed, or if one
    metric decides a run and another one those that it is compared with.
    """
    common = _common_number(runs)
    groups: dict[frozenset[tuple[str, str]], dict[str, Row]] = {}
    for run, run_labels in zip(runs, labels_of(runs), strict=True):
        seed = _seed(run)
        for client, decided, values in _compared(run, of):
            labels = run_labels | client
            rows = groups.setdefault(frozenset(labels.items()), {})
            for model, value in values.items():
                row = rows.setdefault(model, Row(labels, model, {}, decided))
                _check_alike(row, decided, run.name, common)
                if seed in row.values:
                    raise RunError(f"{run.name}: there is another run of this experiment with seed {seed}")
                row.values[seed] = value
    return _with_gains(groups, against, common)


def compare_best(runs: Sequence[CollectedRun], key: str, by: str, against: str | None = None) -> list[Row]:
    """As `compare`, but runs that differ in the setting or axis `key` are one group, in which each model has a single
    row: that of the label where it is best on the split `by`, as a mean over the seeds and the last evaluations.

    So a rate is tuned on held-out data, each model has its own, and the test set says once what that comes to. Labels
    with fewer seeds than others are not chosen. Gains are over the global model at its own best label.

    Raises `RunError` as `compare` does, for a key that is none, and if `by` is the split of the values.
    """
    check(by != "test", "--by", by, "must be another split: the test set is not for choosing")
    key = _key_of(runs, key)
    runs_by_group: dict[frozenset[tuple[str, str]], dict[str, list[CollectedRun]]] = {}
    for run, labels in zip(runs, labels_of(runs, key), strict=True):
        label = labels.pop(key)
        by_label = runs_by_group.setdefault(frozenset(labels.items()), {})
        by_label.setdefault(label, []).append(run)
        if by not in run.last_means or by == run.curves.split:
            others = [split for split in run.last_means if split not in ("test", run.curves.split)]
            choices = ", ".join(others) or "nothing: no model was scored there"
            requirement = f"must be another split than that of the results: {choices}"
            raise RunError(f"{run.name}: --by {shortened(by)}: {requirement}")
    groups: dict[frozenset[tuple[str, str]], dict[str, Row]] = {}
    for group, by_label in runs_by_group.items():
        compared = {label: compare(of_label) for label, of_label in by_label.items()}
        most_seeds = max(len(row.values) for rows in compared.values() for row in rows)
        groups[group] = {}
        for model in dict.fromkeys(row.model for rows in compared.values() for row in rows):
            candidates: dict[str, Row] = {}
            means: dict[str, float | None] = {}
            left_out: list[str] = []
            for label, rows in compared.items():
                for row in rows:
                    if row.model != model:
                        continue
                    if len(row.values) < most_seeds:
                        left_out.append(label)
                        continue
                    candidates[label] = row
                    means[label] = mean_or_none(run.last_means[by].get(model) for run in by_label[label])
            if not candidates:
                continue
            criterion = next(iter(candidates.values())).decided.criterion
            label = criterion.best(means) or next(iter(candidates))
            choice = Choice(key, by, means[label], tuple(left_out))
            row = replace(candidates[label], gain=None, interval=None, pairs=0, choice=choice)
            groups[group][model] = replace(row, labels={**dict(group), key: label})
    return _with_gains(groups, against, _common_number(runs))


def _key_of(runs: Sequence[CollectedRun], key: str) -> str:
    """The axis, or the setting, that a user means.

    Raises `RunError` unless all runs have it, and some differ in nothing else.
    """
    axes = list(dict.fromkeys(axis for run in runs for axis in run.labels))
    values: dict[str, set[str]] = {}
    for run in runs:
        if not run.labels:
            for setting, value in flat(run.config):
                values.setdefault(setting, set()).add(str(value))
    differing = [setting for setting, of_setting in values.items() if len(of_setting) > 1]
    key = named_axis(key, [*axes, *differing])
    others: dict[str, str] = {}
    for labels in labels_of(runs, key):
        if key not in labels or key in _SEEDS:
            axes = [axis for axis in axes if axis not in _SEEDS]
            choices = f"one of {', '.join(axes)}" if axes else "a setting of the runs, such as local.lr"
            raise RunError(f"--best-over {shortened(key)}: must be {choices}")
        label = labels.pop(key)
        if others.setdefault(json.dumps(labels, sort_keys=True), label) != label:
            return key
    raise RunError(f"--best-over {key}: no two of the runs differ in it and in nothing else but their seed")


def _with_gains(
    groups: Mapping[frozenset[tuple[str, str]], Mapping[str, Row]], against: str | None, common: str
) -> list[Row]:
    """All rows with their gains; the reference is in the row's group, or in that of the label `against`."""
    axis, label = _reference(against, groups)
    compared = []
    for group, rows in groups.items():
        labels = dict(group)
        if axis:
            labels[axis] = label
        reference = groups.get(frozenset(labels.items()), {}).get("model")
        for row in rows.values():
            compared.append(_with_gain(row, reference, common))
    return compared


def _compared(run: CollectedRun, of: str) -> list[Compared]:
    """What is compared of a run: of each client, or of the whole run, which has no label of a client."""
    criterion = replace(run.curves.criterion, target=None)
    if not of:
        values = {model: summary["last_mean"] for model, summary in run.summary["models"].items()}
        return [({}, Curves(criterion, run.curves.split, {}), values)]
    if of not in _numbers_over_clients(run):
        known = ", ".join(_numbers_over_clients(run))
        requirement = f"must be one of {known}" if known else "no client has scored its models"
        raise RunError(f"{run.name}: --of {shortened(of)}: {requirement}")
    split, _, number = of.partition("/")
    if number == EACH:
        return _of_each_client(run, split, replace(criterion, name=f"{criterion.name} (last evaluation)"))
    criterion = replace(criterion, name=f"{criterion.name} ({WORDS[number]})")
    if number == "client_std":
        criterion = replace(criterion, better="lower")
    values = {model: results[number] for model, results in run.summary["over_clients"][split].items()}
    return [({}, Curves(criterion, split, {}), values)]


def _common_number(runs: Sequence[CollectedRun]) -> str:
    """What `--of` can name of all runs: the mean over the clients on the first split; empty if there is none."""
    if not runs:
        return ""
    numbers = [_numbers_over_clients(run) for run in runs]
    for number in numbers[0]:
        if all(number in of_run for of_run in numbers):
            return number
    return ""


def _numbers_over_clients(run: CollectedRun) -> list[str]:
    """All that `--of` can name of a run, as SPLIT/NUMBER."""
    numbers = []
    for split in run.summary.get("over_clients", ()):
        numbers += [f"{split}/{number}" for number in OVER_CLIENTS]
        if run.clients and split in run.clients["splits"]:
            numbers.append(f"{split}/{EACH}")
    return numbers


def _of_each_client(run: CollectedRun, split: str, criterion: Criterion) -> list[Compared]:
    """The last result of each client of a run on a split."""
    assert run.clients is not None
    models = run.clients["splits"][split]
    compared: list[Compared] = []
    for place, client in enumerate(run.clients["clients"]):
        labels = {"client": str(client)}
        if not isinstance(client, str):  # with another seed the client of this number has other samples
            labels["seed"] = str(_seed(run))
        values = {model: results[place] for model, results in models.items()}
        compared.append((labels, Curves(criterion, split, {}), values))
    return compared


def not_chosen(rows: Iterable[Row]) -> Iterator[str]:
    """A line for each label from which no model's best was chosen, since it has fewer seeds than others."""
    lines: dict[str, None] = {}
    for row in rows:
        if row.choice is not None:
            for label in row.choice.left_out:
                lines[f"{row.choice.axis}={label} has fewer seeds than others, and is not chosen"] = None
    yield from lines


def by_decided(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in groups, each of one metric on one split: others must not stand in one column."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.decided.criterion.name, row.decided.split), []).append(row)
    return list(groups.values())


def head(rows: Sequence[Row], runs: Sequence[CollectedRun], of: str = "") -> str:
    """The line above the table of these rows: what is compared, and over how many evaluations it is a mean.

    `of` is that of `compare`; each client's results are of one evaluation, as their name says. `runs` are all runs,
    also those of other metrics and splits.
    """
    title = rows[0].decided.title
    if of.endswith(f"/{EACH}"):
        return title
    alike = [run for run in runs if of or run.curves.title == title]
    counts = sorted({run.summary["averaged"] for run in alike})
    last = " or ".join(map(str, counts))
    evaluations = "evaluation" if counts == [1] else "evaluations"
    line = f"{title}, mean over the last {last} {evaluations}"
    choice = rows[0].choice
    if choice is not None:
        line += f"; {choice.axis} is each model's best on {SPLITS[choice.split]}"
    return line


def table(rows: Sequence[Row]) -> Table:
    """Rows of one metric and split as a table to print with `terminal.show`; shares in per cent, their gains in
    percentage points."""
    result = empty_table()
    axes = list(dict.fromkeys(axis for row in rows for axis in row.labels))
    for column in (*axes, "model"):
        result.add_column(column, overflow="fold")
    heads = ["seeds", "mean ± std", GAIN]
    choice = rows[0].choice if rows else None
    if choice is not None:
        heads.insert(1, f"on {SPLITS[choice.split]}")
    for column in heads:
        result.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        words = [row.labels.get(axis, UNKNOWN) for axis in axes]
        numbers = [str(len(row.values)), _with_unit(row), row.gain_text(2)]
        if row.choice is not None:
            numbers.insert(1, row.decided.criterion.text(row.choice.mean, 2))
        result.add_row(*words, row.model, *numbers)
    if rows and rows[0].decided.caption:
        result.caption = rows[0].decided.caption
    return result


def labels_of(runs: Sequence[CollectedRun], tuned: str = "") -> list[dict[str, str]]:
    """Each run's labels on all axes except the seed.

    Runs outside of a sweep that differ in the setting `tuned` have it as a label, and are one experiment otherwise.
    """
    names: dict[str, list[str]] = {}
    for run in runs:
        if not _labels_without_seed(run):
            names.setdefault(_experiment_of(run, tuned), []).append(run.name)
    names_of_groups = _names_of(names)
    labels_of_runs = []
    for run in runs:
        labels = _labels_without_seed(run)
        if not labels:
            labels["run"] = names_of_groups[_experiment_of(run, tuned)]
            settings = dict(flat(run.config))
            if tuned in settings:
                labels[tuned] = str(settings[tuned])
        labels_of_runs.append(labels)
    return labels_of_runs


def _labels_without_seed(run: CollectedRun) -> dict[str, str]:
    """A run's labels on the axes of its sweep except the seed."""
    return {axis: label for axis, label in run.labels.items() if axis not in ("seed", "options.seed")}


def _names_of(runs_by_experiment: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """By experiment, a name of its own: its first run's, in which `seed=*` stands for the seeds of several.

    Experiments that would have the same name are called after their first run as it is.
    """
    names = {}
    for experiment, runs in runs_by_experiment.items():
        names[experiment] = runs[0]
        if len(runs) > 1:
            names[experiment] = re.sub(r"\bseed=-?\d+", "seed=*", runs[0])
    counts = Counter(names.values())
    for experiment, runs in runs_by_experiment.items():
        if counts[names[experiment]] > 1:
            names[experiment] = runs[0]
    return names


def _experiment_of(run: CollectedRun, tuned: str = "") -> str:
    """A text that is the same for runs on the same data that differ only in their seed, and in the setting `tuned`."""
    return f"{_settings_of(run, tuned)} {run.samples}"


def _settings_of(run: CollectedRun, tuned: str = "") -> str:
    """A text that is the same for runs whose settings differ only in their seed, their data's path, and in `tuned`.

    It is the run's name where the folder does not say how it was trained: for a run that was made in Python, and for a
    fork, whose source had settings of its own.
    """
    made_in_python = not run.config.get("built_by", run.config)
    if made_in_python or run.forked is not None:
        return run.name
    settings = dict(flat(_without_seed(run.config)))
    settings.pop(tuned, None)
    return json.dumps(settings, sort_keys=True)


def unlike(runs: Sequence[CollectedRun]) -> Iterator[str]:
    """A line for each run with the labels of another one, with which it is combined though it has other settings."""
    first: dict[frozenset[tuple[str, str]], CollectedRun] = {}
    for run, labels in zip(runs, labels_of(runs), strict=True):
        other = first.setdefault(frozenset(labels.items()), run)
        settings = dict(flat(run.config))
        other_settings = dict(flat(other.config))
        different = []
        for key in sorted(settings.keys() | other_settings.keys()):
            counts = changes_numbers(key) and key not in _SEEDS
            if counts and settings.get(key) != other_settings.get(key):
                different.append(key)
        if different:
            keys = ", ".join(different)
            yield f"run {run.name}: has the labels of {other.name} and other settings: {keys}"


def of_other_data(runs: Sequence[CollectedRun]) -> Iterator[str]:
    """A line for each run on other data than one with its labels, or, if it has none, with its settings."""
    first: dict[str, CollectedRun] = {}
    for run in runs:
        labels = _labels_without_seed(run)
        key = json.dumps(labels, sort_keys=True) if labels else _settings_of(run)
        other = first.setdefault(key, run)
        if run.samples and other.samples and run.samples != other.samples:
            yield f"run {run.name}: was trained on other data than {other.name}"


def of_other_lengths(runs: Sequence[CollectedRun]) -> Iterator[str]:
    """A line if some runs have more rounds than others: the ends that are compared are those of different rounds."""
    longest = max((run.rounds for run in runs), default=0)
    shorter: list[str] = []
    for run in runs:
        if run.rounds < longest:
            shorter.append(f"{run.name} {run.rounds}")
    if shorter:
        yield f"runs have different numbers of rounds, up to {longest}: {some(shorter, 4)}"


def _seed(run: CollectedRun) -> int:
    """The seed of a run. The function that makes a federation may take it as an option."""
    seed = run.config.get("seed", run.config.get("options", {}).get("seed", 0))
    if not isinstance(seed, int):
        raise RunError(f"{run.name}: options.seed = {shortened(str(seed))}: must be a whole number, to combine seeds")
    return seed


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in which runs must not differ to be those of one experiment."""
    settings = {key: value for key, value in config.items() if key not in _CHANGE_NO_NUMBER}
    if "data" in settings:
        settings["data"] = _without(settings["data"], "path")
    averages = config.get("averages", {})
    settings["averages"] = {name: _without(average, "storage") for name, average in averages.items()}
    settings["precision"] = config.get("engine", {}).get("precision", "full")
    settings["options"] = _without(config.get("options", {}), "seed")
    return settings


def _without(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The table without a key."""
    return {name: value for name, value in table.items() if name != key}


def _reference(against: str | None, groups: Iterable[frozenset[tuple[str, str]]]) -> tuple[str, str]:
    """The axis and the label of the runs that the others are compared with; two empty texts if there are none."""
    if against is None:
        return "", ""
    axis, _, label = against.partition("=")
    known = set().union(*groups)
    axis = named_axis(axis, {axis for axis, _ in known})
    if (axis, label) not in known:
        choices = ", ".join(sorted(f"{axis}={label}" for axis, label in known))
        raise RunError(f"--against {shortened(against)}: must be one of {choices}")
    return axis, label


def _check_alike(row: Row, decided: Curves, name: str, common: str) -> None:
    """Raise `RunError` unless the row's values are of the same criterion on the same split.

    `common` is what `--of` can name of all runs, if there is something.
    """
    if row.decided == decided:
        return
    line = f"{name}: {decided.title} decides, and {row.decided.title} in runs that it is compared with"
    if row.decided.criterion == decided.criterion:
        if common:
            line += f"; compare all on one: --of {common}"
        else:
            line += "; there is no split on which the clients of all runs have scored"
    raise RunError(line)


def _with_gain(row: Row, reference: Row | None, common: str) -> Row:
    """The row with its gain over the reference. A row that is the reference has no gain."""
    if reference is None or reference is row:
        return row
    labels = " ".join(f"{axis}={label}" for axis, label in reference.labels.items())
    _check_alike(row, reference.decided, labels, common)
    gains = []
    for seed, value in row.values.items():
        if seed in reference.values:
            other = reference.values[seed]
            if value is None or other is None:
                return row
            gains.append(row.decided.criterion.gain(value, other))
    if not gains:
        return row
    return replace(row, gain=fmean(gains), interval=_interval(gains), pairs=len(gains))


def _interval(gains: Sequence[float]) -> float | None:
    """Half the width of the confidence interval of the mean gain; None for a single one."""
    if len(gains) < 2:
        return None
    return half_width(gains)


def half_width(values: Sequence[float], intervals: float = 1) -> float:
    """Half the width of Student's confidence interval of the mean of two or more values, t s / sqrt(n).

    One of several `intervals` is so much wider that all hold together with the same confidence (Bonferroni).
    """
    from scipy.stats import t

    outside = (1 - CONFIDENCE) / intervals
    quantile = float(t.ppf(1 - outside / 2, len(values) - 1))
    return quantile * stdev(values) / math.sqrt(len(values))


def _with_unit(row: Row) -> str:
    """The mean of a row, with the sign of per cent if it is a share."""
    text = row.mean_text(2)
    if row.decided.criterion.share and row.mean is not None:
        text += " %"
    return text
