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


def drawn_or_noted(source: object, draw: Callable[[], Picture], notes: list[str]) -> Picture | None:
    """The picture that `draw` makes, if the page can show it; otherwise None, and a line on its `source` in `notes`.

    Raises `LibraryError` if a library is missing.
    """
    try:
        picture = draw()
        plotly(picture)
    except LibraryError:
        raise
    except Exception as error:  # what a damaged file leads to can't be foreseen
        notes.append(f"left out: {source}: {error!r}")
        return None
    return picture


def analyses(findings: Sequence[Analysis], notes: list[str]) -> list[tuple[Analysis, Picture]]:
    """Each finding of a study with its picture, grouped by kind."""
    order = {kind: place for place, kind in enumerate(kinds())}
    drawn: list[Analysis] = []
    contents: list[dict[str, Any]] = []
    for finding in sorted(findings, key=lambda finding: order.get(finding.kind, len(order))):
        content = finding.content | {"title": finding.title}
        if drawn_or_noted(finding.file, partial(_of_study, content), notes):
            drawn.append(finding)
            contents.append(content)
    return list(zip(drawn, pictures(contents), strict=True))


def _of_study(content: dict[str, Any]) -> Picture:
    return study_of(content).picture(content)


def clients(runs: Sequence[CollectedRun], notes: list[str]) -> list[Picture]:
    """The sorted results of the clients, with a panel for each split of each run; one picture for each metric."""
    drawn: dict[str, Picture] = {}
    for run in runs:
        if run.clients is None:
            continue
        draw = partial(picture_of_clients, run.clients, run.curves.criterion)
        picture = drawn_or_noted(f"the clients' own results of {run.name}", draw, notes)
        if picture is not None:
            drawn[run.name] = picture
    together: dict[tuple[str, str], Picture] = {}
    for name, picture in drawn.items():
        key = (picture.title, picture.caption)
        panels = [_named(panel, name, len(drawn)) for panel in picture.panels]
        first = together.setdefault(key, replace(picture, panels=[]))
        together[key] = replace(first, panels=[*first.panels, *panels])
    return list(together.values())


def partitions(runs: Sequence[CollectedRun], notes: list[str]) -> Picture | None:
    """The panels of each different partition. None if no run has written one."""
    partitions_by_text: dict[str, dict[str, Any]] = {}
    names_by_text: dict[str, list[str]] = {}
    for run in runs:
        if run.partition is not None:
            text = json.dumps(run.partition, sort_keys=True)
            partitions_by_text.setdefault(text, run.partition)
            names_by_text.setdefault(text, []).append(run.name)
    drawn: dict[str, Picture] = {}
    for text, names in names_by_text.items():
        label = names[0]
        if len(names) > 1:
            label += f" and {len(names) - 1} more"
        draw = partial(partition, partitions_by_text[text])
        picture = drawn_or_noted(f"the partition of {names[0]}", draw, notes)
        if picture is not None:
            drawn[label] = picture
    if not drawn:
        return None
    panels = []
    titles = []
    for label, picture in drawn.items():
        bars, *dots = picture.panels  # the page has the classes first, then the sizes
        panels += [_named(panel, label, len(names_by_text)) for panel in (*dots, bars)]
        titles.append(f"{label}: {picture.title}.")
    caption = " ".join([*titles, AREA])
    if len(drawn) == 1:
        caption = next(iter(drawn.values())).caption
    return Picture("Partition", panels, caption=caption)


def _named(panel: Panel, label: str, count: int) -> Panel:
    """The panel with the name of what it belongs to, if there are several."""
    if count == 1:
        return panel
    return replace(panel, name=f"{label}: {panel.name}")


def on_network(runs: Sequence[CollectedRun], notes: list[str]) -> list[Picture]:
    """Runs on a simulated network: the metric against time and client trips, time lines, the link and the window."""
    evaluated = [run for run in runs if run.curves]
    drawn = [_over_time(group) for group in by_metric(evaluated)]
    contents: dict[str, dict[str, Any]] = {}
    timelines: list[Picture] = []
    for run in runs:
        if run.timeline is not None and sound(run, notes):
            contents[run.name] = run.timeline
            timelines.append(timeline(run.timeline, run.name))
    if timelines:
        panels = [panel for picture in timelines for panel in picture.panels]
        drawn.append(replace(timelines[0], panels=panels))
        drawn.append(link(contents))
    return drawn


def sound(run: CollectedRun, notes: list[str]) -> bool:
    """Whether a run's time line can be drawn; otherwise `notes` gets a line."""
    assert run.timeline is not None
    file = run.folder / "timeline.json"
    for draw in (partial(timeline, run.timeline), partial(link, {run.name: run.timeline})):
        if drawn_or_noted(file, draw, notes) is None:
            return False
    return True


def _over_time(runs: Sequence[CollectedRun]) -> Picture:
    """The metric against simulated time and client trips: one line for each model, or for each run of several."""
    if len(runs) == 1:
        return progress(runs[0].curves, runs[0].network)
    first = runs[0].curves
    panels = []
    for key, along in AGAINST.items():
        for model, _, lines in by_model(runs, against=key):
            panels.append(panel(f"{model} against {along}", lines, first.criterion, along=along))
    return over_time(first, panels)
