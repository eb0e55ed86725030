"""The partitions of the runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ....runs.pictures import Panel, Picture
from ....runs.pictures.partition import AREA, partition
from ..collect import CollectedRun
from .noted import drawn_or_noted


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
    panels = [_named(panel, label, len(known)) for label, picture in drawn.items() for panel in _dots_first(picture)]
    told = [f"{label}: {picture.title}." for label, picture in drawn.items()]
    caption = next(iter(drawn.values())).caption if len(drawn) == 1 else " ".join([*told, AREA])
    return Picture("Partition", panels, caption=caption)


def _dots_first(picture: Picture) -> list[Panel]:
    """The panels in the order of the page: classes first, then sizes."""
    bars, *dots = picture.panels
    return [*dots, bars]


def _named(panel: Panel, label: str, partitions: int) -> Panel:
    return replace(panel, name=f"{label}: {panel.name}") if partitions > 1 else panel
