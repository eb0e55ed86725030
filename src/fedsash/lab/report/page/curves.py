"""The metric that decides against rounds: every model of every run, raw and smoothed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ....evaluation import mean_or_none
from ....runs.pictures import Line, Panel, Picture, look
from ....runs.pictures.curves import ORDER, WINDOW, beyond, capital, lines, panel
from ....runs.pictures.picture import Layer
from ..collect import CollectedRun

T = TypeVar("T")

MOST = 120_000
"""The most points in the picture. With more, points of every curve are left out."""


def curves(runs: Sequence[CollectedRun], each: str = "run") -> Picture | None:
    """The curves of runs that one metric decides; None if no run was evaluated.

    With several runs there is a panel for each model, with one line for each run, and a panel for each run, with one
    line for each model. `each` is the word for a run.
    """
    evaluated = [run for run in runs if run.curves]
    if not evaluated:
        return None
    first = evaluated[0].curves
    panels = []
    if len(evaluated) == 1:
        panels.append(_of_run(evaluated[0], evaluated, evaluated[0].name))
    else:
        for model, runs_of_model, lines_of_model in by_model(evaluated, smoothed=True):
            name = f"{model}, every {each}"
            panels.append(panel(name, lines_of_model, first.criterion, **_marks(runs_of_model)))
        for run in evaluated:
            panels.append(_of_run(run, evaluated, f"{run.name}, every model"))
    step = math.ceil(_points(evaluated) / MOST)
    caption = (
        f"{capital(first.title)} after each evaluated round. The smoothed lines are those of a Savitzky-Golay "
        f"filter (window {WINDOW} evaluations, order {ORDER}); the numbers in the tables are never smoothed."
    )
    if step > 1:
        caption += f" One evaluation in {step} is drawn."
    caption = " ".join([caption, *beyond(panels)])
    title = f"{capital(first.criterion.name)} over the rounds"
    return Picture(title, [_thinned(panel, step) for panel in panels], caption=caption)


def _points(runs: Sequence[CollectedRun]) -> int:
    """How many evaluations the runs have, of all of their models."""
    points = 0
    for run in runs:
        for values in run.curves.models.values():
            points += len(values)
    return points


def by_model(
    runs: Sequence[CollectedRun], smoothed: bool = False, against: str = ""
) -> Iterator[tuple[str, list[CollectedRun], list[Line]]]:
    """Each model, the best average first and the global model last, with the runs that have it and their lines.

    The lines are `against` a key of the network's rows, if one is given, else against rounds.
    """
    by_run: dict[str, dict[str, Line]] = {}
    for run in runs:
        moments = None
        if against:
            moments = {round: load.measures[against] for round, load in run.network.items()}
        by_run[run.name] = {line.name: line for line in lines(run.curves, at=moments, smoothed=smoothed)}
    models = dict.fromkeys(model for of_run in by_run.values() for model in of_run)
    for model in sorted(models, key=lambda model: (model == "model", _error(model, runs))):
        runs_of_model = []
        lines_of_model = []
        for place, run in enumerate(runs):  # a run has the same style in the panels of all models
            line = by_run[run.name].get(model)
            if line is not None:
                runs_of_model.append(run)
                lines_of_model.append(replace(line, name=run.name, style=look(place)))
        yield model, runs_of_model, lines_of_model


def _error(model: str, runs: Sequence[CollectedRun]) -> float:
    """The mean over the runs of what should be low of a model; infinite if it is not defined in all that have it."""
    means = []
    for run in runs:
        if model in run.summary["models"]:
            means.append(run.summary["models"][model]["last_mean"])
    mean = mean_or_none(means)
    if mean is None:
        return math.inf
    return runs[0].curves.criterion.error_of(mean)


def _of_run(run: CollectedRun, runs: Sequence[CollectedRun], name: str) -> Panel:
    """A run's models, each in the style that it has in all runs."""
    models = dict.fromkeys(model for run in runs for model in run.curves.models)
    averages = [model for model in models if model != "model"]
    return panel(name, lines(run.curves, averages, smoothed=True), run.curves.criterion, **_marks([run]))


def _thinned(panel: Panel, step: int) -> Panel:
    """The panel with only every `step`-th point of its lines."""
    layers: list[Layer] = []
    for layer in panel.layers:
        if isinstance(layer, Line):
            smooth = layer.smooth and layer.smooth[::step]
            layer = replace(layer, x=layer.x[::step], y=layer.y[::step], smooth=smooth)
        layers.append(layer)
    return replace(panel, layers=layers)


def _marks(runs: Sequence[CollectedRun]) -> dict[str, Any]:
    """The target and the start of the broadcast, if they are the same in all runs."""
    return {
        "target": common_value(run.curves.criterion.target for run in runs),
        "broadcast_start": common_value(run.broadcast_start for run in runs),
    }


def common_value(values: Iterable[T]) -> T | None:
    """The value, if it is the same in all runs; otherwise None."""
    different = set(values)
    if len(different) != 1:
        return None
    return different.pop()
