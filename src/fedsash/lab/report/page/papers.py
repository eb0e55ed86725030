"""Pictures for papers: means over seeds, curves, time lines and analyses as PDF and PNG."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, count, product
from pathlib import Path

from ....runs.pictures import Picture
from ....runs.pictures.curves import curves
from ....runs.pictures.network import link, progress, timeline
from ....runs.pictures.paper import draw as draw_picture
from ..collect import CollectedRun, Collection
from . import seeds
from .pictures import analyses, sound

ENDINGS = ("pdf", "png")


def draw(found: Collection, folder: Path) -> int:
    """Draw the means over seeds, every run's curves, its time on a network, and every analysis.

    Returns the number of files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, Picture] = {}
    for picture in seeds.pictures(found.runs) if seeds.comparisons(found.runs, []) else ():
        pictures[_free("seeds", pictures)] = picture
    for analysis, picture in analyses(found.analyses, []):
        pictures[_free(f"{analysis.source}-{analysis.file.stem}", pictures)] = picture
    for run in found.runs:
        for name, picture in _of_run(run).items():
            pictures[_free(f"{run.name}-{name}", pictures)] = picture
    for name, ending in product(pictures, ENDINGS):
        draw_picture(pictures[name], folder / f"{name}.{ending}")
    return len(ENDINGS) * len(pictures)


def _of_run(run: CollectedRun) -> dict[str, Picture]:
    """A run's pictures by their names."""
    found: dict[str, Picture] = {}
    if run.curves:
        found["curves"] = curves(run.curves, run.name)
        if run.network:
            found["progress"] = progress(run.curves, run.network)
    if run.timeline is not None and sound(run, []):
        found |= {"timeline": timeline(run.timeline), "link": link({run.name: run.timeline})}
    return found


def _free(name: str, taken: Iterable[str]) -> str:
    """The name as a file name that is valid on every operating system, with a number if it is taken."""
    name = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
    low = {each.lower() for each in taken}
    return next(free for free in chain([name], (f"{name}-{n}" for n in count(2))) if free.lower() not in low)
