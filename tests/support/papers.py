"""Evidence for the papers' claims, drawn as runs would give it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsash.evaluation import Evaluation
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.papers.pick import Labels
from fedsash.lab.papers.reproduction import Reproduction
from fedsash.lab.papers.results import Results
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content
from fedsash.tasks import Criterion
from support.histories import history_of
from support.json_files import write_json


def drawn(dims: Sequence[str], means: Mapping[Key, float], noise: float = 0.01, seeds: int = 3) -> Numbers:
    """Numbers of `seeds` runs: each key's mean, and on it Gaussian noise of its own in each seed.

    The same arguments give the same numbers.
    """
    random = np.random.default_rng(0)
    values = {key: list(mean + noise * random.standard_normal(seeds)) for key, mean in means.items()}
    return Numbers.measured(dims, values)


def of_seeds(evidence: Mapping[str, Numbers], seeds: int) -> dict[str, Numbers]:
    """The evidence of the first so many seeds alone."""
    found = {}
    for name, numbers in evidence.items():
        fewer = {key: quantity.values[:seeds] for key, quantity in numbers.items()}
        found[name] = Numbers.measured(numbers.dims, fewer)
    return found


def lessened(evidence: Mapping[str, Numbers]) -> Iterator[tuple[str, str | float, dict[str, Numbers]]]:
    """The evidence without one label, with its dimension: once for each label of each dimension of each part."""
    for name, numbers in evidence.items():
        for dim in numbers.dims:
            for label in numbers.labels(dim):
                yield dim, label, {**evidence, name: numbers.without(**{dim: label})}


def pretend(
    out: Path,
    reproduction: Reproduction,
    accuracy: Callable[[Labels], Mapping[int, float]],
    target: float = 0.5,
    models: Sequence[str] = ("model",),
) -> Results:
    """Folders of runs that were never trained, with these accuracies (shares) by round, from a run's labels.

    Runs without any are left out. Every round counts as a client trip, too. All `models` have the same accuracies.
    """
    sweep, criterion = reproduction.plan(), Criterion(target=target)
    for run in sweep.runs:
        values = accuracy(run.labels)
        if values:
            folder = out / "runs" / run.name
            folder.mkdir(parents=True)
            rows: list[dict[str, Any]] = [
                {"round": t, "trips": t, "model": model, "split": "test", criterion.name: value}
                for t, value in values.items()
                for model in models
            ]
            Records(folder).create(history_of(rows))
            write_json(folder / GOAL, goal_content(criterion, Evaluation()))
            write_json(folder / "summary.json", {"rounds": run.experiment.rounds})
    return Results(sweep, out, reproduction.labels)
