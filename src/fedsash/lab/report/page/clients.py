"""Each client's own results in the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ....runs.pictures import Picture
from ....runs.pictures.clients import clients as picture_of
from ..collect import CollectedRun
from .noted import drawn_or_noted


def clients(runs: Sequence[CollectedRun], notes: list[str]) -> list[Picture]:
    """The sorted results of the clients, a panel for each split of each run; those together that show the same."""
    drawn: dict[str, Picture] = {}
    for run in runs:
        if run.clients is not None:
            draw = partial(picture_of, run.clients, run.curves.criterion)
            if picture := drawn_or_noted(f"the clients' own results of {run.name}", draw, notes):
                drawn[run.name] = picture
    alike: dict[tuple[str, str], Picture] = {}
    for name, picture in drawn.items():
        panels = [replace(of, name=f"{name}: {of.name}") if len(drawn) > 1 else of for of in picture.panels]
        one = alike.setdefault((picture.title, picture.caption), replace(picture, panels=[]))
        alike[picture.title, picture.caption] = replace(one, panels=[*one.panels, *panels])
    return list(alike.values())
