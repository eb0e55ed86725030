"""The evidence for claims in the results of a reproduction: its tables, its curves, and what its studies found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..sweeps import PlannedRun
from .figures import CurvesFigure, StudyFigure, ValuesFigure
from .numbers import Key, Numbers
from .reproduction import Reproduction
from .results import Results
from .tables import DIMS


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
