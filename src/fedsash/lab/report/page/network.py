"""Runs on a simulated network: time lines, the link and the window, accuracy against time and client trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...pictures import Picture
from ...pictures.curves import panel
from ...pictures.network import ACCURACY, AGAINST, accuracy, link, timeline
from .collect import RunOnPage
from .curves import by_model


def pictures(runs: Sequence[RunOnPage], notes: list[str]) -> list[Picture]:
    """The pictures of the runs. A damaged time line gives a line in `notes`."""
    drawn = {run.name: run.timeline for run in runs if run.timeline is not None and _sound(run, notes)}
    evaluated = [run for run in runs if run.accuracies]
    found = [_accuracy(evaluated)] if evaluated else []
    if drawn:
        each = [timeline(content, name) for name, content in drawn.items()]
        found.append(replace(each[0], panels=[panel for picture in each for panel in picture.panels]))
        found.append(link(drawn))
    return found


def _sound(run: RunOnPage, notes: list[str]) -> bool:
    assert run.timeline is not None
    try:
        timeline(run.timeline), link({run.name: run.timeline})
    except (KeyError, TypeError, ValueError, IndexError) as error:
        notes.append(f"left out: {run.folder / 'timeline.json'}: {error!r}")
        return False
    return True


def _accuracy(runs: Sequence[RunOnPage]) -> Picture:
    """Accuracy against simulated time and client trips: one line for each model, or for each run of several."""
    if len(runs) == 1:
        (run,) = runs
        return accuracy(run.accuracies, run.network, run.evaluation.target if run.config else None)
    panels = [
        panel(f"{model} against {along}", lines, along=along)
        for key, along in AGAINST.items()
        for model, _, lines in by_model(runs, against=key)
    ]
    return Picture("Accuracy over time and trips", panels, caption=ACCURACY)
