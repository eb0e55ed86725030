"""The metric that decides against rounds: every model of every run, raw and smoothed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ....evaluation import mean_or_none
from ....runs.pictures import Line, Panel, Picture, Style, look
from ....runs.pictures.curves import ORDER, WINDOW, beyond, capital, lines, panel, turns
from ....runs.pictures.picture import Layer
from ....runs.pictures.styles import DASHES, SYMBOLS
from ..collect import CollectedRun

T = TypeVar("T")

MOST = 120_000
"""The most points in the picture. With more, points of every curve are left out."""
TOGETHER = 12
"""The most lines of several runs that are drawn over each other at first."""
TICKABLE = 24
"""The most lines in the legend of that panel: further models are in it if there is room, for the reader to tick."""
MARKED = 3
"""The most turns of single runs that are marked in a panel of several. Turns of all of them are always marked."""


def curves(runs: Sequence[CollectedRun], each: str = "run") -> Picture | None:
    """The curves of runs that one metric decides; None if no run was evaluated.

    With several runs the first panel has them over each other, with the models that all of them have. Then there is a
    panel for each model, with one line for each run, and a panel for each run, with one line for each model. `each` is
    the word for a run.
    """
    evaluated = [run for run in runs if run.curves]
    if not evaluated:
        return None
    first = evaluated[0].curves
    panels = []
    if len(evaluated) == 1:
        panels.append(_of_run(evaluated[0], evaluated, evaluated[0].name))
    else:
        panels += together(evaluated, each)
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


def together(runs: Sequence[CollectedRun], each: str = "run") -> list[Panel]:
    """A panel with all runs over each other: the models that all of them have. None if there is no such model.

    If these are too many lines, they are those of the best model, of the best and the global one, and so on. A run has
    a colour, a model a dash and a mark; global models are thin. A fork begins where it leaves its source.
    """
    shared = _shared_models(runs)[: max(TOGETHER // len(runs), 1)]
    if not shared:
        return []
    models = list(dict.fromkeys([*shared, *(model for run in runs for model in run.curves.models)]))
    if sum(len(run.curves.models) for run in runs) > TICKABLE:
        models = shared
    lines_together = []
    for place, run in enumerate(runs):
        of_run = {line.name: line for line in lines(run.curves, smoothed=True)}
        for model in models:
            if model not in of_run:
                continue
            line = of_run[model]
            if _has_source(run, runs, model):
                line = _from(line, run.forked or 0)
            name = run.name
            if len(models) > 1:
                name = f"{run.name}: {model}"
            style = _style(place, models.index(model), len(models), model == "model")
            lines_together.append(replace(line, name=name, style=style, shown=model in shared))
    title = f"every {each}: {', '.join(shared)}"
    return [panel(title, lines_together, runs[0].curves.criterion, **_marks(runs))]


def _has_source(run: CollectedRun, runs: Sequence[CollectedRun], model: str) -> bool:
    """Whether the run is a fork, and one of the others has the same values of the model up to there."""
    if run.forked is None:
        return False
    before = _until(run.curves.models[model], run.forked)
    for other in runs:
        if other is not run and before and before == _until(other.curves.models.get(model, {}), run.forked):
            return True
    return False


def _until(points: Mapping[int, float], last: int) -> dict[int, float]:
    return {round: value for round, value in points.items() if round <= last}


def _from(line: Line, first: int) -> Line:
    """The part of a line from x = `first` on."""
    begin = sum(x is not None and x < first for x in line.x)
    return replace(line, x=line.x[begin:], y=line.y[begin:], smooth=line.smooth and line.smooth[begin:])


def laid_over(runs: Sequence[CollectedRun], each: str = "run") -> list[Picture]:
    """Runs that one metric decides, over each other, as a picture for a paper. None if they have no common model."""
    pictures = []
    for drawn in together(runs, each):
        below = beyond([drawn])
        pictures.append(Picture(capital(runs[0].curves.title), [drawn], caption=" ".join(below), below=below))
    return pictures


def _shared_models(runs: Sequence[CollectedRun]) -> list[str]:
    """The models that all runs have: the best average, the global model, then the other averages."""
    shared = [model for model in runs[0].curves.models if all(model in run.curves.models for run in runs)]
    shared.sort(key=lambda model: _error(model, runs))
    if "model" in shared:
        shared.remove("model")
        shared.insert(1, "model")
    return shared


def _style(run: int, model: int, models: int, quiet: bool) -> Style:
    """The style of a model of a run, by their places, where every run has at most so many models."""
    if models == 1:
        return look(run)
    colour = look(run).colour
    lap = [look(place).colour for place in range(run)].count(colour)
    place = lap * models + model
    return Style(colour, DASHES[place % len(DASHES)], SYMBOLS[place % len(SYMBOLS)], quiet)


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
    """The target, if it is the same in all runs, and the rounds where runs were forked or begin to broadcast.

    A turn of some of the runs names them; if too many runs have turns of their own, only common ones are marked.
    """
    names_by_turn: dict[tuple[int, str], list[str]] = {}
    for run in runs:
        for round, note in turns(run.forked, run.broadcast_start).items():
            names_by_turn.setdefault((round, note), []).append(run.name)
    notes: dict[int, list[str]] = {}
    for (round, note), names in sorted(names_by_turn.items()):
        if len(names) == len(runs):
            notes.setdefault(round, []).append(note)
        elif len(names_by_turn) <= MARKED and len(names) <= MARKED:
            notes.setdefault(round, []).append(f"{', '.join(names)}: {note}")
    return {
        "target": common_value(run.curves.criterion.target for run in runs),
        "turns": {round: "; ".join(of_round) for round, of_round in notes.items()},
    }


def common_value(values: Iterable[T]) -> T | None:
    """The value, if it is the same in all runs; otherwise None."""
    different = set(values)
    if len(different) != 1:
        return None
    return different.pop()
