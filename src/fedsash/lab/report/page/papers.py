"""Pictures for papers: means over seeds, curves, time lines and analyses as PDF and PNG."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ....runs.pictures import Picture
from ....runs.pictures.curves import curves
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
