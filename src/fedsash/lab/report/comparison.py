"""Comparison over seeds: mean, standard deviation, and the gain with its confidence interval."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ...evaluation import OVER_CLIENTS, Curves, mean_or_none
from ...runs.client_results import WORDS
from ...runs.table import empty_table
from ...settings.errors import RunError, shortened
from ...system.files import flat
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
        known = [value for value in self.values.values() if value is not None]
        return stdev(known) if self.mean is not None and len(known) > 1 else None

    def plain(self) -> dict[str, Any]:
        """The row as plain data."""
        numbers = {name: getattr(self, name) for name in ("values", "mean", "std", "gain", "interval", "pairs")}
        decided = {"metric": self.decided.criterion.name, "split": self.decided.split}
        return {"labels": self.labels, "model": self.model, **decided, **numbers}

    def mean_text(self, digits: int) -> str:
        """The mean and its standard deviation as text."""
        return self.decided.criterion.spread(self.mean, self.std, digits)

    def gain_text(self, digits: int) -> str:
        """The gain and half the width of its interval as text; with fewer pairs than seeds their number, too."""
        text = self.decided.criterion.spread(self.gain, self.interval, digits, sign="+")
        return f"{text} ({self.pairs} of {len(self.values)})" if 0 < self.pairs < len(self.values) else text


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
    for run, labels in zip(runs, labels_of(runs), strict=True):
        seed = _seed(run)
        for client, decided, values in _compared(run, of):
            its = labels | client
            rows = groups.setdefault(frozenset(its.items()), {})
            for model, value in values.items():
                row = rows.setdefault(model, Row(its, model, {}, decided))
                _check_alike(row, decided, run.name)
                if seed in row.values:
                    raise RunError(f"{run.name}: there is another run of this experiment with seed {seed}")
                row.values[seed] = value
    axis, label = _reference(against, groups)
    compared_with = {axis: label} if axis else {}
    return [
        _with_gain(row, groups.get(frozenset((row.labels | compared_with).items()), {}).get("model"))
        for rows in groups.values()
        for row in rows.values()
    ]


def _compared(run: CollectedRun, of: str) -> list[Compared]:
    """What is compared of a run: of each client, or of the whole run, which has no label of a client."""
    criterion = replace(run.curves.criterion, target=None)
    if not of:
        values = {model: found["last_mean"] for model, found in run.summary["models"].items()}
        return [({}, Curves(criterion, run.curves.split, {}), values)]
    split, _, number = of.partition("/")
    results = run.summary["over_clients"]
    clients = run.clients or {"clients": [], "splits": {}}
    if number == EACH and split in clients["splits"]:
        named = replace(criterion, name=f"{criterion.name} (last evaluation)")
        models = clients["splits"][split]
        return [
            (_client(name, run), Curves(named, split, {}), {model: each[i] for model, each in models.items()})
            for i, name in enumerate(clients["clients"])
        ]
    if split not in results or number not in OVER_CLIENTS:
        there = ", ".join(
            f"{split}/{number}"
            for split in results
            for number in (*OVER_CLIENTS, *([EACH] if split in clients["splits"] else []))
        )
        right = f"must be one of {there}" if there else "no client has scored its models"
        raise RunError(f"{run.name}: --of {shortened(of)}: {right}")
    named = replace(criterion, name=f"{criterion.name} ({WORDS[number]})")
    if number == "client_std":
        named = replace(named, better="lower")
    return [({}, Curves(named, split, {}), {model: found[number] for model, found in results[split].items()})]


def _client(name: str | int, run: CollectedRun) -> dict[str, str]:
    """The labels of a client."""
    return {"client": str(name)} if isinstance(name, str) else {"client": str(name), "seed": str(_seed(run))}


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
    several = len(captions) > 1
    for axis in (*axes, "model", *(["metric"] if several else [])):
        result.add_column(axis, overflow="fold")
    for head in ("seeds", "mean ± std", GAIN):
        result.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        words = [
            *(row.labels.get(axis, UNKNOWN) for axis in axes),
            row.model,
            *([row.decided.title] if several else []),
        ]
        result.add_row(*words, str(len(row.values)), _with_unit(row), row.gain_text(2))
    result.caption = "\n".join(filter(None, captions)) or None
    return result


def labels_of(runs: Sequence[CollectedRun]) -> list[dict[str, str]]:
    """Each run's labels on all axes except the seed."""
    first: dict[str, str] = {}
    found = []
    for run in runs:
        labels = {axis: label for axis, label in run.labels.items() if axis not in ("seed", "options.seed")}
        known = run.name  # nobody knows the settings of a run that was made in Python, or of a fork's source
        if run.config.get("built_by", run.config) and run.forked is None:
            known = json.dumps(_without_seed(run.config), sort_keys=True)
        found.append(labels or {"run": first.setdefault(known, run.name)})
    return found


def unlike(runs: Sequence[CollectedRun]) -> Iterator[str]:
    """A line for each run with the labels of another one, with which it is combined though it has other settings."""
    first: dict[frozenset[tuple[str, str]], CollectedRun] = {}
    for run, labels in zip(runs, labels_of(runs), strict=True):
        other = first.setdefault(frozenset(labels.items()), run)
        here, there = (dict(flat(one.config)) for one in (run, other))
        keys = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
        if told := ", ".join(key for key in keys if changes_numbers(key) and key not in _SEEDS):
            yield f"run {run.name}: has the labels of {other.name} and other settings: {told}"


def _seed(run: CollectedRun) -> int:
    """The seed of a run. The function that makes a federation may take it as an option."""
    seed = run.config.get("seed", run.config.get("options", {}).get("seed", 0))
    if not isinstance(seed, int):
        raise RunError(f"{run.name}: options.seed = {shortened(str(seed))}: must be a whole number, to combine seeds")
    return seed


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in which runs must not differ to be those of one experiment."""
    kept = {key: value for key, value in config.items() if key not in _CHANGE_NO_NUMBER}
    averages = config.get("averages", {}).items()
    if "data" in kept:
        kept["data"] = {key: value for key, value in kept["data"].items() if key != "path"}
    kept |= {"averages": {name: {k: v for k, v in own.items() if k != "storage"} for name, own in averages}}
    kept |= {"precision": config.get("engine", {}).get("precision", "full")}
    return kept | {"options": {key: value for key, value in config.get("options", {}).items() if key != "seed"}}


def _reference(against: str | None, groups: Mapping[frozenset[tuple[str, str]], Any]) -> tuple[str, str]:
    if against is None:
        return "", ""
    axis, _, label = against.partition("=")
    known = {(a, one) for labels in groups for a, one in labels}
    axis = named_axis(axis, {a for a, _ in known})
    if (axis, label) not in known:
        there = ", ".join(sorted(f"{a}={one}" for a, one in known))
        raise RunError(f"--against {shortened(against)}: must be one of {there}")
    return axis, label


def _check_alike(row: Row, decided: Curves, name: str) -> None:
    """Raise `RunError` unless the row's values are of the same criterion on the same split."""
    if row.decided != decided:
        why = f"{decided.title} decides, and {row.decided.title} in runs that it is compared with"
        same = row.decided.criterion == decided.criterion
        right = "; compare both on one: --of client_test/client_mean, or what else their clients have scored"
        raise RunError(f"{name}: {why}{right if same else ''}")


def _with_gain(row: Row, reference: Row | None) -> Row:
    """The row with its gain over the reference. A row that is the reference has no gain."""
    if reference is None or reference is row:
        return row
    _check_alike(row, reference.decided, " ".join(map("=".join, reference.labels.items())))
    pairs = [(row.values[seed], reference.values[seed]) for seed in row.values if seed in reference.values]
    gains = [row.decided.criterion.gain(own, other) for own, other in pairs if own is not None and other is not None]
    if not gains or len(gains) < len(pairs):
        return row
    return replace(row, gain=fmean(gains), interval=_interval(gains), pairs=len(gains))


def _interval(gains: Sequence[float]) -> float | None:
    if len(gains) < 2:
        return None
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1)) * stdev(gains) / math.sqrt(len(gains))


def _with_unit(row: Row) -> str:
    text = row.mean_text(2)
    return f"{text} %" if row.decided.criterion.share and row.mean is not None else text
