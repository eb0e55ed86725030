"""The pictures of the runs' own files: findings, clients, partitions, time lines. A damaged file gives a note."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ....runs.pictures import Panel, Picture
from ....runs.pictures.clients import clients as picture_of_clients
from ....runs.pictures.curves import panel
from ....runs.pictures.network import AGAINST, link, over_time, progress, timeline
from ....runs.pictures.page import plotly
from ....runs.pictures.partition import AREA, partition
from ....settings.errors import LibraryError
from ...studies import kinds, pictures, study_of
from ..collect import Analysis, CollectedRun, by_metric
from .curves import by_model


def drawn_or_noted(what: object, draw: Callable[[], Picture], notes: list[str]) -> Picture | None:
    """The picture that `draw` makes, if the page can show it; otherwise None, and a line about `what` in `notes`.

    Raises `LibraryError` if a library is missing.
    """
    try:
        plotly(picture := draw())
    except LibraryError:
        raise
    except Exception as error:  # what a damaged file leads to can't be foreseen
        notes.append(f"left out: {what}: {error!r}")
        return None
    return picture


def analyses(findings: Sequence[Analysis], notes: list[str]) -> list[tuple[Analysis, Picture]]:
    """Each finding of a study with its picture, grouped by kind."""
    order = list(kinds())
    drawn: list[Analysis] = []
    contents: list[dict[str, Any]] = []
    for finding in sorted(findings, key=lambda one: order.index(one.kind) if one.kind in order else len(order)):
        content = finding.content | {"title": finding.title}
        if drawn_or_noted(finding.file, partial(_of_study, content), notes):
            drawn.append(finding)
            contents.append(content)
    return list(zip(drawn, pictures(contents), strict=True))


def _of_study(content: dict[str, Any]) -> Picture:
    return study_of(content).picture(content)


def clients(runs: Sequence[CollectedRun], notes: list[str]) -> list[Picture]:
    """The sorted results of the clients, a panel for each split of each run; those together that show the same."""
    drawn: dict[str, Picture] = {}
    for run in runs:
        if run.clients is not None:
            draw = partial(picture_of_clients, run.clients, run.curves.criterion)
            if picture := drawn_or_noted(f"the clients' own results of {run.name}", draw, notes):
                drawn[run.name] = picture
    alike: dict[tuple[str, str], Picture] = {}
    for name, picture in drawn.items():
        panels = [_named(panel, name, len(drawn)) for panel in picture.panels]
        one = alike.setdefault((picture.title, picture.caption), replace(picture, panels=[]))
        alike[picture.title, picture.caption] = replace(one, panels=[*one.panels, *panels])
    return list(alike.values())


def partitions(runs: Sequence[CollectedRun], notes: list[str]) -> Picture | None:
    """The panels of each different partition. None if no run has written one."""
    known: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for run in runs:
        if run.partition is not None:
            known.setdefault(json.dumps(run.partition, sort_keys=True), ([], run.partition))[0].append(run.name)
    drawn: dict[str, Picture] = {}
    for names, content in known.values():
        label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        if picture := drawn_or_noted(f"the partition of {names[0]}", partial(partition, content), notes):
            drawn[label] = picture
    if not drawn:
        return None
    panels = []
    for label, picture in drawn.items():
        bars, *dots = picture.panels  # the page has the classes first, then the sizes
        panels += [_named(panel, label, len(known)) for panel in (*dots, bars)]
    titles = [f"{label}: {picture.title}." for label, picture in drawn.items()]
    caption = next(iter(drawn.values())).caption if len(drawn) == 1 else " ".join([*titles, AREA])
    return Picture("Partition", panels, caption=caption)


def _named(panel: Panel, label: str, count: int) -> Panel:
    """The panel with the name of what it belongs to, if there are several."""
    return replace(panel, name=f"{label}: {panel.name}") if count > 1 else panel


def on_network(runs: Sequence[CollectedRun], notes: list[str]) -> list[Picture]:
    """Runs on a simulated network: the metric against time and client trips, time lines, the link and the window."""
    timelines = {run.name: run.timeline for run in runs if run.timeline is not None and sound(run, notes)}
    drawn = [_over_time(alike) for alike in by_metric([run for run in runs if run.curves])]
    if timelines:
        each = [timeline(content, name) for name, content in timelines.items()]
        drawn.append(replace(each[0], panels=[panel for picture in each for panel in picture.panels]))
        drawn.append(link(timelines))
    return drawn


def sound(run: CollectedRun, notes: list[str]) -> bool:
    """Whether a run's time line can be drawn; otherwise `notes` gets a line."""
    assert run.timeline is not None
    draws = partial(timeline, run.timeline), partial(link, {run.name: run.timeline})
    return all(drawn_or_noted(run.folder / "timeline.json", draw, notes) for draw in draws)


def _over_time(runs: Sequence[CollectedRun]) -> Picture:
    """The metric against simulated time and client trips: one line for each model, or for each run of several."""
    if len(runs) == 1:
        return progress(runs[0].curves, runs[0].network)
    first = runs[0].curves
    panels = [
        panel(f"{model} against {along}", lines, first.criterion, along=along)
        for key, along in AGAINST.items()
        for model, _, lines in by_model(runs, against=key)
    ]
    return over_time(first, panels)
