"""Runs on a simulated network: time lines, the link and the window, and the metric against time and client trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ....runs.pictures import Picture
from ....runs.pictures.curves import panel
from ....runs.pictures.network import AGAINST, link, over_time, progress, timeline
from ..collect import CollectedRun, by_metric
from .curves import by_model
from .noted import drawn_or_noted


def pictures(runs: Sequence[CollectedRun], notes: list[str]) -> list[Picture]:
    """The pictures of the runs. A damaged time line gives a line in `notes`."""
    drawn = {run.name: run.timeline for run in runs if run.timeline is not None and sound(run, notes)}
    found = [_over_time(alike) for alike in by_metric([run for run in runs if run.curves])]
    if drawn:
        each = [timeline(content, name) for name, content in drawn.items()]
        found.append(replace(each[0], panels=[panel for picture in each for panel in picture.panels]))
        found.append(link(drawn))
    return found


def sound(run: CollectedRun, notes: list[str]) -> bool:
    """Whether a run's time line can be drawn; otherwise `notes` gets a line."""
    assert run.timeline is not None
    draws = partial(timeline, run.timeline), partial(link, {run.name: run.timeline})
    return all(drawn_or_noted(run.folder / "timeline.json", draw, notes) for draw in draws)


def _over_time(runs: Sequence[CollectedRun]) -> Picture:
    """The metric against simulated time and client trips: one line for each model, or for each run of several."""
    if len(runs) == 1:
        (run,) = runs
        return progress(run.curves, run.network)
    first = runs[0].curves
    panels = [
        panel(f"{model} against {along}", lines, first.criterion, along=along)
        for key, along in AGAINST.items()
        for model, _, lines in by_model(runs, against=key)
    ]
    return over_time(first, panels)
