"""Which classes a run's models answer, over some rounds.

    python -m benchmarks.classes RUN FIRST LAST

It prints a row for each model of RUN, of its evaluations from round FIRST to LAST: the mean accuracy of the class that
is lowest in each, the deviation of a class over these rounds (the mean over the classes), and after FIRST and
after LAST the mean over the classes and the accuracy of each, in per cent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsash.runs.records import Records


def of_classes(run: Path, first: int, last: int) -> dict[str, NDArray[np.float64]]:
    """The accuracy of each class on the test set in these rounds, `[rounds, classes]` in per cent, by model."""
    found: dict[str, list[list[float]]] = {}
    for row in Records(run).load().rows():
        if row["split"] == "test" and first <= row["round"] <= last:
            found.setdefault(row["model"], []).append(row["classes"])
    return {model: 100 * np.array(values) for model, values in found.items()}


def summary(values: NDArray[np.float64]) -> tuple[float, float]:
    """The mean over the rounds of the lowest class, and the mean over the classes of a class's deviation."""
    return float(values.min(1).mean()), float(values.std(0).mean())


def main(run: Path, first: int, last: int) -> None:
    """Print the table of a run."""
    for model, values in of_classes(run, first, last).items():
        lowest, moves = summary(values)
        begins, ends = (f"{row.mean():.1f} {row.round().astype(int)}" for row in (values[0], values[-1]))
        print(f"{model:10}  lowest {lowest:.1f}  deviation {moves:.1f}  {first}: {begins}  {last}: {ends}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
