"""Accuracies of runs as means of ten rounds, which go up and down less than single rounds.

    python -m benchmarks.ten_rounds RUN [OTHER]

It prints a row for each model of RUN: the mean of the last ten of so many rounds, in per cent, and the deviation over
the last ten of all. With OTHER, it prints how often the model of RUN is ahead of that of OTHER, and by how much.
RUN and OTHER are folders of runs that are evaluated every round.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsash.runs.records import Records

TEN = 10
SHOWN = (40, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)


def accuracies(run: Path) -> dict[str, NDArray[np.float64]]:
    """The accuracy on the test set after each round, in per cent, by model."""
    found: dict[str, list[float]] = {}
    for row in Records(run).load().rows():
        if row["split"] == "test":
            found.setdefault(row["model"], []).append(100 * row["accuracy"])
    return {model: np.array(values) for model, values in found.items()}


def means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The means of ten rounds; the first is that of rounds 1 to 10."""
    return np.convolve(values, np.full(TEN, 1 / TEN), "valid")


def ahead(run: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[int, int, float]:
    """How often the first is above the second, of how many means of ten rounds, and by how much at most."""
    differences = means(run) - means(other)
    return int((differences > 0).sum()), len(differences), float(differences.max())


def main(run: Path, *others: Path) -> None:
    """Print the tables of a run, and how often it is ahead of others."""
    found = accuracies(run)
    for model, values in found.items():
        shown = [f"{t}: {means(values)[t - TEN]:.1f}" for t in SHOWN if t <= len(values)]
        print(f"{model:10}", *shown, f"deviation over the last ten: {values[-TEN:].std():.1f}", sep="  ")
    for other in others:
        count, of, most = ahead(found["model"], accuracies(other)["model"])
        print(f"ahead of {other.name} in {count} of {of}, by {most:.1f} at most")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
