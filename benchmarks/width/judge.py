"""Rules by their regret, against the best fixed share of the rounds: docs/studies/width.md says how."""

from __future__ import annotations

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


def reference_share(endings: Sequence[Ending], data: str) -> float:
    """The share of the rounds that is best over the runs of the other data sets."""
    others = [ending for ending in endings if ending.labels["data"] != data]
    return min(SHARES, key=lambda part: mean_over_clusters(others, regrets(others, share(part))).mean())


def interval(differences: Floats) -> tuple[float, float, float]:
    """The 95 % interval of the mean over clusters by bootstrap, and the two-sided p-value that it is 0."""
    generator = np.random.default_rng(0)
    draws = generator.integers(0, len(differences), (DRAWS, len(differences)))
    means = differences[draws].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    p = 2 * min(np.mean(means >= 0), np.mean(means <= 0))
    return float(low), float(high), float(max(p, 1 / DRAWS))


def tuned(endings: Sequence[Ending], rules: Mapping[str, Rule]) -> str:
    """The name of the rule that has the least regret over clusters."""
    return min(rules, key=lambda name: mean_over_clusters(endings, regrets(endings, rules[name])).mean())


def judge(folder: Path) -> Iterator[str]:
    """The page's table, in Markdown."""
    endings = [ending for recording in recordings(folder) for ending in endings_of(recording)]
    tuning = [ending for ending in endings if ending.labels["data"] in TUNED_ON]
    judging = [ending for ending in endings if ending.labels["data"] in JUDGED_ON]
    variograms = {}
    for memory in MEMORIES:
        for weight in WEIGHTS:
            variograms[f"c = {memory:g}, mu = {weight:g}"] = by_variogram(memory, weight)
    distances = {f"threshold {threshold:g}": by_distances(threshold) for threshold in THRESHOLDS}
    constants = tuned(tuning, variograms)
    threshold = tuned(tuning, distances)
    yield f"{constants}; {threshold}: chosen on {' and '.join(TUNED_ON)}"
    rules: dict[str, Rule] = {
        PRIMARY: variograms[constants],
        "distances": distances[threshold],
        "MSER-5": by_mser,
        "1 % of the rounds": one_percent,
    }
    for name, part in (("on which it was tuned", tuning), ("judged once", judging)):
        if part:
            yield f"\n{name}: {len(part)} ends of runs in {len(set(e.cluster for e in part))} clusters\n"
            yield from table(endings, part, rules)


def table(endings: Sequence[Ending], part: Sequence[Ending], rules: Mapping[str, Rule]) -> Iterator[str]:
    """Each rule's regret, and its difference from the reference, in points of accuracy."""
    shares = {data: reference_share(endings, data) for data in {ending.labels["data"] for ending in part}}
    reference = [ending.regret(share(shares[ending.labels["data"]])(ending.trail)) for ending in part]
    by_rule = {name: regrets(part, rule) for name, rule in rules.items()}
    by_rule["two-tailed, held-out data"] = [ending.two_tailed_regret() for ending in part]
    by_rule["the model, W = 1"] = [ending.regret(1) for ending in part]
    intervals = {}
    for name, values in by_rule.items():
        intervals[name] = interval(mean_over_clusters(part, np.subtract(values, reference).tolist()))
    secondary = [name for name in by_rule if name != PRIMARY]
    corrected = dict(zip(secondary, holm([intervals[name][2] for name in secondary]), strict=True))
    corrected[PRIMARY] = intervals[PRIMARY][2]
    yield "| rule | regret | less the reference | 95 % interval | p |"
    yield "|---|---|---|---|---|"
    chosen = ", ".join(f"{part:.3g} of the rounds on {data}" for data, part in sorted(shares.items()))
    yield f"| reference: {chosen} | {mean_over_clusters(part, reference).mean():.2f} | | | |"
    for name, values in by_rule.items():
        low, high, _ = intervals[name]
        difference = mean_over_clusters(part, np.subtract(values, reference).tolist()).mean()
        regret = mean_over_clusters(part, values).mean()
        yield f"| {name} | {regret:.2f} | {difference:+.2f} | {low:+.2f} to {high:+.2f} | {corrected[name]:.2g} |"
