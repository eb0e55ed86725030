"""Pictures for papers: curves, time lines and analyses as PDF and PNG."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

from ....basics.errors import RunError
from ...records import Records
from .. import network
from ..curves import curves
from ..pictures import draw_all
from .analyses import KINDS, figures
from .collect import Collection, Run

ENDINGS = ("pdf", "png")


def draw(found: Collection, folder: Path) -> int:
    """Draw every run's curves, what it did on a network, and every analysis; the number of files."""
    folder.mkdir(parents=True, exist_ok=True)
    analyses = [analysis for analysis, _ in figures(found.analyses)[0]]
    pictures = len(analyses)
    for run in found.runs:
        drawn = {f"{_file(run.name)}-{name}": make for name, make in _of_run(run).items()}
        pictures += len(drawn)
        for name, ending in product(drawn, ENDINGS):
            drawn[name](folder / f"{name}.{ending}")
    for kind, ending in product(KINDS, ENDINGS):
        alike = [analysis for analysis in analyses if analysis.kind == kind]
        try:
            draw_all({folder / f"{_file(f'{a.source}-{a.file.stem}')}.{ending}": a.content for a in alike})
        except KeyError as error:
            raise RunError(f"{alike[0].file.parent}: an analysis of the kind {kind!r} has no {error}") from error
    return len(ENDINGS) * pictures


def _of_run(run: Run) -> dict[str, Callable[[Path], None]]:
    """A run's pictures by their names."""
    found: dict[str, Callable[[Path], None]] = {}
    target = run.evaluation.target if run.config else None
    if run.accuracies:
        history = Records(run.folder).load()
        found["curves"] = partial(curves, history, target=target, title=run.name)
        if run.network:
            found["accuracy"] = partial(network.accuracy, history, target=target)
    if run.timeline is not None:
        found |= {"timeline": partial(network.timeline, run.timeline), "link": partial(network.link, run.timeline)}
    return found


def _file(name: str) -> str:
    """A name that is a file's name on every machine."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
