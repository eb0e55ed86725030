"""Rules by their regret, against the best fixed share of the rounds: docs/studies/width.md says how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsash.vector.arrays import Floats, Ints

from ..paired import holm
from .record import Recording, recordings
from .rules import Rule, Trail, by_distances, by_mser, by_variogram, one_percent, share

TUNED_ON = ("digits", "mnist")
JUDGED_ON = ("fashion", "cifar10")
SHARES = (1 / 200, 1 / 100, 1 / 50, 1 / 20, 1 / 10, 1 / 5, 1 / 3, 1 / 2, 1.0)
MEMORIES = (0.5, 1.0, 2.0, 4.0, 8.0)
WEIGHTS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
THRESHOLDS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.2)
DRAWS = 10_000
PRIMARY = "variogram"
REFERENCE = 1 / 5
"""The share of the rounds that was best on digits and MNIST."""
FROZEN: dict[str, Rule] = {
    PRIMARY: by_variogram(1.0, 0.003),
    "distances": by_distances(1.2),
    "MSER-5": by_mser,
    "1 % of the rounds": one_percent,
}
"""The rules with the constants that were chosen on digits and MNIST, before the other data were looked at."""
FEW_CLUSTERS = 10
"""Of fewer clusters the bootstrap's interval is too narrow."""


@dataclass(frozen=True, eq=False)
class Ending:
    """One run after t rounds: its trail, and the accuracy of each window on the two halves `[n, 2]`."""

    labels: Mapping[str, str]
    trail: Trail
    sizes: Ints
    accuracies: Floats
    two_tailed: Ints

    @property
    def cluster(self) -> tuple[str, str, str]:
        return (self.labels["data"], self.labels["skew"], self.labels["method"])

    def accuracy(self, size: int) -> Floats:
        """The accuracies `[2]` of the window of this size, or of the nearest one that was judged."""
        return np.asarray(self.accuracies[np.abs(self.sizes - size).argmin()])

    @property
    def oracle(self) -> float:
        """The accuracy of the window that is best on one half, scored on the other half; the mean of both ways."""
        first, second = self.accuracies.argmax(axis=0)
        return float(self.accuracies[first, 1] + self.accuracies[second, 0]) / 2

    def regret(self, size: int) -> float:
        """The oracle's accuracy less that of this size, in points."""
        return 100 * (self.oracle - float(self.accuracy(size).mean()))

    def two_tailed_regret(self) -> float:
        """The regret of two-tailed averaging, which chooses on one half and is scored on the other."""
        first, second = self.two_tailed
        scored = (self.accuracy(int(first))[1] + self.accuracy(int(second))[0]) / 2
        return 100 * (self.oracle - float(scored))


def endings_of(recording: Recording) -> Iterator[Ending]:
    parts = zip(recording.ends, recording.sizes, recording.accuracies, recording.two_tailed, strict=True)
    for end, sizes, accuracies, two_tailed in parts:
        yield Ending(recording.labels, Trail(recording.sketch[:end]), sizes, accuracies, two_tailed)


def mean_over_clusters(endings: Sequence[Ending], values: Sequence[float]) -> Floats:
    """The mean of the values in each cluster, `[clusters]`."""
    by_cluster: dict[tuple[str, str, str], list[float]] = {}
    for ending, value in zip(endings, values, strict=True):
        by_cluster.setdefault(ending.cluster, []).append(value)
    return np.array([np.mean(cluster) for cluster in by_cluster.values()])


def regrets(endings: Sequence[Ending], rule: Rule) -> list[float]:
    return [ending.regret(rule(ending.trail)) for ending in endings]


def interval(differences: Floats) -> tuple[float, float, float]:
    """The 95 % interval of the mean over clusters by bootstrap, and the two-sided p-value that it is 0."""
    generator = np.random.default_rng(0)
    draws = generator.integers(0, len(differences), (DRAWS, len(differences)))
    means = differences[draws].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    beyond = min(np.sum(means >= 0), np.sum(means <= 0))
    return float(low), float(high), float(min(1, 2 * (1 + beyond) / (1 + DRAWS)))


def least_regret(endings: Sequence[Ending], rules: Mapping[str, Rule]) -> str:
    """The name of the rule that has the least regret over clusters."""
    return min(rules, key=lambda name: mean_over_clusters(endings, regrets(endings, rules[name])).mean())


def judge(folder: Path) -> Iterator[str]:
    """The page's tables, in Markdown."""
    recorded = list(recordings(folder))
    endings = [ending for recording in recorded for ending in endings_of(recording)]
    runs = Counter(recording.labels["data"] for recording in recorded)
    yield f"runs: {', '.join(f'{count} of {data}' for data, count in runs.items())}"
    tuning = [ending for ending in endings if ending.labels["data"] in TUNED_ON]
    judging = [ending for ending in endings if ending.labels["data"] in JUDGED_ON]
    if tuning:
        yield f"chosen on {' and '.join(TUNED_ON)}: {', '.join(chosen(tuning))}"
    parts = {"on which the constants were chosen": tuning, "judged": judging}
    for data in JUDGED_ON:
        parts[f"judged, {data} alone"] = [ending for ending in judging if ending.labels["data"] == data]
    for name, part in parts.items():
        if part:
            yield f"\n{name}: {len(part)} ends of runs\n"
            yield from table(part)


def chosen(endings: Sequence[Ending]) -> Iterator[str]:
    """The constants that have the least regret, and the best share. `FROZEN` and `REFERENCE` should be these."""
    variograms = {}
    for memory in MEMORIES:
        for weight in WEIGHTS:
            variograms[f"c = {memory:g} and mu = {weight:g}"] = by_variogram(memory, weight)
    yield least_regret(endings, variograms)
    yield least_regret(endings, {f"threshold {threshold:g}": by_distances(threshold) for threshold in THRESHOLDS})
    yield least_regret(endings, {f"{part:g} of the rounds": share(part) for part in SHARES})


def table(endings: Sequence[Ending]) -> Iterator[str]:
    """Each rule's regret, and its difference from the reference, in points of accuracy.

    Of few clusters the lowest and the highest difference stand in the interval's place, and there is no p.
    """
    reference = regrets(endings, share(REFERENCE))
    by_rule = {name: regrets(endings, rule) for name, rule in FROZEN.items()}
    by_rule["two-tailed, held-out data"] = [ending.two_tailed_regret() for ending in endings]
    by_rule["the model, W = 1"] = [ending.regret(1) for ending in endings]
    differences = {}
    for name, values in by_rule.items():
        differences[name] = mean_over_clusters(endings, np.subtract(values, reference).tolist())
    count = len(differences[PRIMARY])
    few = count < FEW_CLUSTERS
    intervals = {name: interval(difference) for name, difference in differences.items()}
    p_values = {} if few else corrected({name: p for name, (_, _, p) in intervals.items()})
    yield f"| rule, {count} clusters | regret | less the reference | {'clusters' if few else '95 % interval'} | p |"
    yield "|---|---|---|---|---|"
    yield f"| {REFERENCE:g} of the rounds, the reference | {mean_over_clusters(endings, reference).mean():.2f} | | | |"
    for name, values in by_rule.items():
        difference = differences[name]
        low, high = (difference.min(), difference.max()) if few else intervals[name][:2]
        regret = mean_over_clusters(endings, values).mean()
        p = f"{p_values[name]:.2g}" if p_values else ""
        yield f"| {name} | {regret:.2f} | {difference.mean():+.2f} | {low:+.2f} to {high:+.2f} | {p} |"
    widths = ", ".join(f"{name} {median_share(endings, rule):.2g}" for name, rule in FROZEN.items())
    yield f"\nmedian W/t: {widths}"


def corrected(p_values: Mapping[str, float]) -> dict[str, float]:
    """The p-values of the rules; those of the secondary ones are corrected for their number, by Holm's procedure."""
    secondary = [name for name in p_values if name != PRIMARY]
    return {**p_values, **dict(zip(secondary, holm([p_values[name] for name in secondary]), strict=True))}


def median_share(endings: Sequence[Ending], rule: Rule) -> float:
    """The median of a rule's widths, as a share of the rounds so far."""
    return float(np.median([rule(ending.trail) / len(ending.trail.sketch) for ending in endings]))
