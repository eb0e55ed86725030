"""The metric that decides against rounds: every model of every run, raw and smoothed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....evaluation import mean_or_none
from ....runs.pictures import Line, Panel, Picture, look
from ....runs.pictures.curves import capital, lines, panel
from ....runs.pictures.smoothing import ORDER, WINDOW
from ..collect import CollectedRun

MOST = 120_000
"""The most points in the picture. With more, points of every curve are left out."""


def curves(runs: Sequence[CollectedRun], each: str = "run") -> Picture | None:
    """The curves of runs that one metric decides; None if no run was evaluated.

    With several runs there is a panel for each model, with one line for each run, and a panel for each run, with one
    line for each model. `each` is the word for a run.
    """
    drawn = [run for run in runs if run.curves]
    if not drawn:
        return None
    step = math.ceil(sum(len(points) for run in drawn for points in run.curves.models.values()) / MOST)
    several = len(drawn) > 1
    first = drawn[0].curves
    panels = [_of_run(run, drawn, f"{run.name}, every model" if several else run.name) for run in drawn]
    if several:
        found = by_model(drawn, smoothed=True)
        of_models = [
            panel(f"{model}, every {each}", of, first.criterion, **_marks(having)) for model, having, of in found
        ]
        panels = of_models + panels
    thinned = f" One evaluation in {step} is drawn." if step > 1 else ""
    caption = (
        f"{capital(first.title)} after each evaluated round. The smoothed lines are those of a Savitzky-Golay "
        f"filter (window {WINDOW} evaluations, order {ORDER}); the numbers in the tables are never smoothed.{thinned}"
    )
    title = f"{capital(first.criterion.name)} over the rounds"
    return Picture(title, [_thinned(of, step) for of in panels], caption=caption)


def by_model(
    runs: Sequence[CollectedRun], smoothed: bool = False, against: str = ""
) -> Iterator[tuple[str, list[CollectedRun], list[Line]]]:
    """Each model, the best average first and the global model last, with the runs that have it and their lines.

    The lines are `against` a key of the network's rows, if one is given, else against rounds.
    """
    drawn = ((run.name, lines(run.curves, at=_moments(run, against), smoothed=smoothed)) for run in runs)
    of_runs = {run: {line.name: line for line in of_run} for run, of_run in drawn}
    models = dict.fromkeys(model for of_run in of_runs.values() for model in of_run)
    for model in sorted(models, key=lambda model: (model == "model", _error(model, runs))):
        having = [run for run in runs if model in of_runs[run.name]]
        styles = {run.name: look(place) for place, run in enumerate(runs)}  # the same in the panels of all models
        of_model = [replace(of_runs[run.name][model], name=run.name, style=styles[run.name]) for run in having]
        yield model, having, of_model


def _error(model: str, runs: Sequence[CollectedRun]) -> float:
    """The mean over the runs of what should be low of a model; infinite if it is not defined in all that have it."""
    having = [run for run in runs if model in run.summary["models"]]
    mean = mean_or_none(run.summary["models"][model]["last_mean"] for run in having)
    return math.inf if mean is None else runs[0].curves.criterion.error_of(mean)


def _moments(run: CollectedRun, key: str) -> Mapping[int, float] | None:
    """The network's numbers of a run under this key, by round. None without a key."""
    return {round: load.measures[key] for round, load in run.network.items()} if key else None


def _of_run(run: CollectedRun, runs: Sequence[CollectedRun], name: str) -> Panel:
    """A run's models, each in the style that it has in all runs."""
    models = dict.fromkeys(model for run in runs for model in run.curves.models)
    averages = [model for model in models if model != "model"]
    return panel(name, lines(run.curves, averages, smoothed=True), run.curves.criterion, **_marks([run]))


def _thinned(panel: Panel, step: int) -> Panel:
    """The panel with only every `step`-th point of its lines."""

    def thin(line: Line) -> Line:
        return replace(line, x=line.x[::step], y=line.y[::step], smooth=line.smooth and line.smooth[::step])

    return replace(panel, layers=[thin(of) if isinstance(of, Line) else of for of in panel.layers])


def _marks(runs: Sequence[CollectedRun]) -> dict[str, Any]:
    """The target and the start of the broadcast, if they are the same in all runs."""
    targets = {run.curves.criterion.target for run in runs}
    starts = {run.broadcast_start for run in runs}
    target, start = (of.pop() if len(of) == 1 else None for of in (targets, starts))
    return {"target": target, "broadcast_start": start}
