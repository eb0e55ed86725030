"""Comparison over seeds: mean, standard deviation, and the gain with its confidence interval."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ...evaluation import OVER_CLIENTS, Curves, mean_or_none
from ...runs.client_results import WORDS
from ...runs.table import empty_table
from ...settings.errors import RunError, shortened
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
class Row:
    """One model over the seeds of its group. `values` are its results by seed, None if undefined.

    `mean` and `std` (dividing by n - 1) are None if a value is undefined; `std` is also None for a single seed. `gain`
    says how much better it is than the reference, the mean over the `pairs` of runs with one seed. `interval` is half
    the width of its confidence interval, t * s / sqrt(n) from the paired differences (Student); None for a single pair.
    `decided` says what the values are: their criterion without its target, and the split.
    """

    labels: dict[str, str]
    model: str
    values: dict[int, float | None]
    decided: Curves
    gain: float | None = None
    interval: float | None = None
    pairs: int = 0

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
        return {
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
    groups: dict[frozenset[tuple[str, str]], dict[str, Row]] = {}
    for run, run_labels in zip(runs, labels_of(runs), strict=True):
        seed = _seed(run)
        for client, decided, values in _compared(run, of):
            labels = run_labels | client
            rows = groups.setdefault(frozenset(labels.items()), {})
            for model, value in values.items():
                row = rows.setdefault(model, Row(labels, model, {}, decided))
                _check_alike(row, decided, run.name)
                if seed in row.values:
                    raise RunError(f"{run.name}: there is another run of this experiment with seed {seed}")
                row.values[seed] = value
    axis, label = _reference(against, groups)
    compared = []
    for rows in groups.values():
        for row in rows.values():
            labels = dict(row.labels)
            if axis:
                labels[axis] = label
            reference = groups.get(frozenset(labels.items()), {}).get("model")
            compared.append(_with_gain(row, reference))
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


def _numbers_over_clients(run: CollectedRun) -> list[str]:
    """All that `--of` can name of a run, as SPLIT/NUMBER."""
    numbers = []
    for split in run.summary["over_clients"]:
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


def head(rows: Sequence[Row], runs: Sequence[CollectedRun], of: str = "") -> str:
    """The line above the table of these runs: what is compared, and over how many evaluations it is a mean.

    `of` is that of `compare`; each client's results are of one evaluation, as their name says.
    """
    titles = " and ".join(dict.fromkeys(row.decided.title for row in rows))
    if of.endswith(f"/{EACH}"):
        return titles
    counts = sorted({run.summary["averaged"] for run in runs})
    last = " or ".join(map(str, counts))
    evaluations = "evaluation" if counts == [1] else "evaluations"
    return f"{titles}, mean over the last {last} {evaluations}"


def table(rows: Sequence[Row]) -> Table:
    """The rows as a table to print with `terminal.show`; shares in per cent, their gains in percentage points."""
    result = empty_table()
    axes = list(dict.fromkeys(axis for row in rows for axis in row.labels))
    captions = list(dict.fromkeys(row.decided.caption for row in rows))
    heads = [*axes, "model"]
    if len(captions) > 1:
        heads.append("metric")
    for head in heads:
        result.add_column(head, overflow="fold")
    for head in ("seeds", "mean ± std", GAIN):
        result.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        words = [row.labels.get(axis, UNKNOWN) for axis in axes]
        words.append(row.model)
        if len(captions) > 1:
            words.append(row.decided.title)
        result.add_row(*words, str(len(row.values)), _with_unit(row), row.gain_text(2))
    caption = "\n".join(text for text in captions if text)
    if caption:
        result.caption = caption
    return result


def labels_of(runs: Sequence[CollectedRun]) -> list[dict[str, str]]:
    """Each run's labels on all axes except the seed."""
    names: dict[str, list[str]] = {}
    for run in runs:
        names.setdefault(_experiment_of(run), []).append(run.name)
    labels_of_runs = []
    for run in runs:
        labels = {axis: label for axis, label in run.labels.items() if axis not in ("seed", "options.seed")}
        labels_of_runs.append(labels or {"run": _name_of(names[_experiment_of(run)])})
    return labels_of_runs


def _name_of(names: Sequence[str]) -> str:
    """The name of a group of runs: the first one's, in which `seed=*` stands for the seeds of several."""
    if len(names) == 1:
        return names[0]
    return re.sub(r"\bseed=[^,/]*", "seed=*", names[0])


def _experiment_of(run: CollectedRun) -> str:
    """A text that is the same for runs that differ only in their seed.

    It is the run's name where the folder does not say how it was trained: for a run that was made in Python, and for a
    fork, whose source had settings of its own.
    """
    made_in_python = not run.config.get("built_by", run.config)
    if made_in_python or run.forked is not None:
        return run.name
    return json.dumps(_without_seed(run.config), sort_keys=True)


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


def _check_alike(row: Row, decided: Curves, name: str) -> None:
    """Raise `RunError` unless the row's values are of the same criterion on the same split."""
    if row.decided == decided:
        return
    line = f"{name}: {decided.title} decides, and {row.decided.title} in runs that it is compared with"
    if row.decided.criterion == decided.criterion:
        line += "; compare both on one: --of client_test/client_mean, or what else their clients have scored"
    raise RunError(line)


def _with_gain(row: Row, reference: Row | None) -> Row:
    """The row with its gain over the reference. A row that is the reference has no gain."""
    if reference is None or reference is row:
        return row
    labels = " ".join(f"{axis}={label}" for axis, label in reference.labels.items())
    _check_alike(row, reference.decided, labels)
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
    """Half the width of Student's confidence interval of the mean gain; None for a single one."""
    if len(gains) < 2:
        return None
    from scipy.stats import t

    quantile = float(t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1))
    return quantile * stdev(gains) / math.sqrt(len(gains))


def _with_unit(row: Row) -> str:
    """The mean of a row, with the sign of per cent if it is a share."""
    text = row.mean_text(2)
    if row.decided.criterion.share and row.mean is not None:
        text += " %"
    return text
