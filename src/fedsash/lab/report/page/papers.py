"""Pictures for papers: means over seeds, curves, time lines and analyses as PDF and PNG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ....runs.pictures import Panel, Picture
from ....runs.pictures.curves import beyond, curves
from ....runs.pictures.network import link, progress, timeline
from ....runs.pictures.paper import draw as draw_picture
from ..collect import CollectedRun, Collection, by_metric
from . import seeds
from .curves import laid_over
from .pictures import analyses, sound

ENDINGS = ("pdf", "png")


def draw(collection: Collection, folder: Path) -> int:
    """Draw the means over seeds, the runs over each other, every run's curves, its time on a network, and every
    analysis.

    Returns the number of files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, Picture] = {}
    runs = collection.runs
    if seeds.comparisons(runs, []):
        for picture in seeds.pictures(runs):
            pictures[_free("seeds", pictures)] = picture
    for group in by_metric([run for run in runs if run.curves]):
        if len(group) > 1:
            for picture in laid_over(group):
                pictures[_free("curves", pictures)] = picture
    for analysis, picture in analyses(collection.analyses, []):
        pictures[_free(f"{analysis.source}-{analysis.file.stem}", pictures)] = picture
    for run in runs:
        for name, picture in _of_run(run).items():
            pictures[_free(f"{run.name}-{name}", pictures)] = picture
    for name, picture in pictures.items():
        for ending in ENDINGS:
            draw_picture(picture, folder / f"{name}.{ending}")
    return len(ENDINGS) * len(pictures)


def of_settings(runs: Sequence[CollectedRun]) -> Picture | None:
    """The settings over each other, as means over their seeds; the models of a single one. None without evaluations.

    Each metric that decides, on its split, has a panel of its own.
    """
    panels: list[Panel] = []
    for group in by_metric(seeds.means(runs)):
        if len(group) > 1:
            for picture in laid_over(group):
                panels += [replace(panel, name=picture.title) for panel in picture.panels]
        else:
            (run,) = group
            picture = curves(run.curves, forked=run.forked, broadcast_start=run.broadcast_start)
            panels += [replace(panel, name=f"{run.name}: {picture.title}") for panel in picture.panels]
    if not panels:
        return None
    below = beyond(panels)
    return Picture(panels[0].name, panels, caption=" ".join(below), below=below)


def _of_run(run: CollectedRun) -> dict[str, Picture]:
    """A run's pictures by their names."""
    pictures: dict[str, Picture] = {}
    if run.curves:
        pictures["curves"] = curves(run.curves, run.name, forked=run.forked, broadcast_start=run.broadcast_start)
        if run.network:
            pictures["progress"] = progress(run.curves, run.network)
    if run.timeline is not None and sound(run, []):
        pictures["timeline"] = timeline(run.timeline)
        pictures["link"] = link({run.name: run.timeline})
    return pictures


def _free(name: str, taken: Iterable[str]) -> str:
    """The name as a file name that is valid on every operating system, with a number if it is taken."""
    name = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
    lower_case = {each.lower() for each in taken}  # some systems take A.pdf and a.pdf for one file
    free = name
    number = 1
    while free.lower() in lower_case:
        number += 1
        free = f"{name}-{number}"
    return free
