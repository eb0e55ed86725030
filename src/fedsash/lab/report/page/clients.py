"""Each client's own results in the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...pictures import Picture
from ...pictures.clients import clients as picture_of
from ..collect import CollectedRun


def clients(runs: Sequence[CollectedRun], notes: list[str]) -> Picture | None:
    """The sorted results of the clients, a panel for each split of each run. None if no run has written them."""
    drawn: dict[str, Picture] = {}
    for run in runs:
        if run.clients is not None:
            try:
                drawn[run.name] = picture_of(run.clients, run.curves.criterion)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                notes.append(f"the clients' own results of {run.name} are left out: {error!r}")
    if not drawn:
        return None
    several, first = len(drawn) > 1, next(iter(drawn.values()))
    panels = [
        replace(panel, name=f"{name}: {panel.name}") if several else panel
        for name, picture in drawn.items()
        for panel in picture.panels
    ]
    return replace(first, panels=panels)
