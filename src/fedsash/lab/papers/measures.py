"""The evidence for claims in the results of a reproduction: its tables, its curves, and what its studies found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..sweeps import PlannedRun
from .figures import CurvesFigure, StudyFigure, ValuesFigure
from .numbers import Key, Numbers, Quantity
from .reproduction import Reproduction
from .results import Results
from .tables import DIMS

if TYPE_CHECKING:
    from .ledger import Ledger


def of_table(reproduction: Reproduction, results: Results, table: str = "") -> Numbers:
    """The measured numbers of a table, by row, column and cell, in the paper's units (per cent, rounds)."""
    values: dict[Key, Mapping[str, float]] = {}
    for number in reproduction.table(table).numbers(results):
        if number.measured.values:
            values[number.row, number.column, number.cell] = number.measured.values
    return Numbers.measured(DIMS, values)


def of_curves(figure: CurvesFigure, results: Results) -> Numbers:
    """A figure's curves, by line and round (or trips): shares in per cent, losses as they are."""
    values: dict[Key, dict[str, float]] = {}
    for line, pick in figure.by_line(results.labels).items():
        for run in results.runs(pick):
            scale = results.criterion(pick).scale
            for place, value in results.curve(run, pick.model, figure.by).items():
                values.setdefault((line, place), {})[str(run.experiment.seed)] = scale * value
    return Numbers.measured(("line", figure.by), values)


def of_values(figure: ValuesFigure, results: Results) -> Numbers:
    """A figure's values, by line and point."""
    values: dict[Key, Mapping[str, float]] = {}
    for line, points in figure.by_line(results.labels).items():
        for point, pick in points.items():
            measured = results.measured(pick).values
            if measured:
                values[line, point] = measured
    return Numbers.measured(("line", "point"), values)


def of_study(
    figure: StudyFigure,
    results: Results,
    read: Callable[[dict[str, Any], PlannedRun], Mapping[Key, float]],
    *dims: str,
) -> Numbers:
    """What a study found, by panel, run and `dims`: `read` gives the numbers in one run's finding, by these dimensions.

    The run is named by its labels but for the seed.
    """
    values: dict[Key, dict[str, float]] = {}
    for panel, run, finding in figure.findings(results):
        name = ", ".join(label for axis, label in run.labels.items() if axis != "seed")
        for key, value in read(finding, run).items():
            values.setdefault((panel, name, *key), {})[str(run.experiment.seed)] = value
    return Numbers.measured(("panel", "run", *dims), values)


def of_ends(figure: CurvesFigure, results: Results) -> Numbers:
    """The ends of a figure's curves, by line: the means over the last evaluations, as in the tables."""
    values: dict[Key, Mapping[str, float]] = {}
    for line, pick in figure.by_line(results.labels).items():
        measured = results.measured(pick).values
        if measured:
            values[(line,)] = measured
    return Numbers.measured(("line",), values)


# --- Rounds, or client trips, until a target that some runs don't reach ---

REACHED = "reached"
BEYOND = "beyond"
"""The labels of "target": rounds until it, and all rounds of runs that did not reach it."""
TARGET_DIMS = ("row", "column", "target")


def of_target(reproduction: Reproduction, results: Results, table: str = "", cell: str = "") -> Numbers:
    """A table's rounds or trips until the target, by row, column and "target", each of the seeds that it is true of."""
    values: dict[Key, Mapping[str, float]] = {}
    for number in reproduction.table(table).numbers(results):
        if number.cell != cell:
            continue
        reached = (number.row, number.column, REACHED)
        beyond = (number.row, number.column, BEYOND)
        if number.measured.reached:
            values[reached] = number.measured.reached
        if number.measured.unreached:
            values[beyond] = number.measured.unreached
    return Numbers.measured(TARGET_DIMS, values)


def entered_target(reproduction: Reproduction, ledger: Ledger, table: str = "", cell: str = "") -> Numbers:
    """A table's rounds or trips until the target in the rows of a ledger, as `of_target` has those of runs."""
    values: dict[Key, Mapping[str, float]] = {}
    for (row, column, place), entry in ledger.rows_in_print(reproduction, table).items():
        if place != cell:
            continue
        if entry.values:
            values[row, column, REACHED] = entry.values
        if entry.unreached:
            values[row, column, BEYOND] = entry.unreached
    return Numbers.measured(TARGET_DIMS, values)


def printed_target(reproduction: Reproduction, table: str = "", cell: str = "") -> Numbers:
    """The rounds until the target that a table prints, as `of_target` has measured ones: "1000+" is beyond 1000."""
    values: dict[Key, float] = {}
    for row, column, place, number in reproduction.table(table).places():
        if place == cell and number.value is not None:
            target = BEYOND if number.beyond else REACHED
            values[row, column, target] = number.value
    return Numbers.exact(TARGET_DIMS, values)


@dataclass(frozen=True, order=True)
class Count:
    """The least number of rounds until a target, which is their number if it was `reached`."""

    least: float
    reached: bool


Counts: TypeAlias = Mapping[str, Count]
"""The count of each seed; of a printed one the seed is "exact"."""


def counts(numbers: Numbers) -> dict[Key, Counts]:
    """The counts in what `of_target` gave, by its other labels. What n rounds did not reach takes n + 1 at least."""
    by_key: dict[Key, dict[str, Count]] = {}
    for target in (REACHED, BEYOND):
        reached = target == REACHED
        for key, quantity in numbers.at(target=target).items():
            seeds = ["exact"] if quantity.exact else quantity.names
            for seed, value in zip(seeds, quantity.values, strict=True):
                least = value if reached else value + 1
                by_key.setdefault(key, {})[seed] = Count(least, reached)
    return dict(by_key)


def compared(function: Callable[[float, float], float], own: Counts, other: Counts) -> Quantity | None:
    """`function` of two counts in each seed, such as their difference; None if it is known of no seed.

    Where one was not reached it is a bound, which says which of them is less. Not a number where it does not say so. A
    seed in which neither was reached says nothing and is left out.
    """
    values: dict[str, float] = {}
    for seed, mine in own.items():
        theirs = other.get(seed)
        if theirs is None or not (mine.reached or theirs.reached):
            continue
        if mine.reached and theirs.reached:
            decided = True
        elif mine.reached:
            decided = mine.least < theirs.least
        else:
            decided = theirs.least < mine.least
        values[seed] = function(mine.least, theirs.least) if decided else math.nan
    if not values:
        return None
    if list(values) == ["exact"]:
        return Quantity(tuple(values.values()), exact=True)
    return Quantity(tuple(values.values()), seeds=tuple(values))
