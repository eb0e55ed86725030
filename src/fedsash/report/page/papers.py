"""Pictures for papers: curves and analyses as PDF and PNG."""

from __future__ import annotations

import re
from pathlib import Path

from ...records import Records
from ..curves import curves
from ..pictures import draw_all
from .analyses import KINDS, figures
from .collect import Collection

ENDINGS = ("pdf", "png")


def draw(found: Collection, folder: Path) -> int:
    """Draw every run's curves and every analysis; the number of files."""
    folder.mkdir(parents=True, exist_ok=True)
    evaluated = [run for run in found.runs if run.accuracies]
    analyses = [analysis for analysis, _ in figures(found.analyses)[0]]
    for ending in ENDINGS:
        for run in evaluated:
            target = run.evaluation.target if run.config else None
            path = folder / f"{_file(run.name)}-curves.{ending}"
            curves(Records(run.folder).load(), path, target=target, title=run.name)
        for kind in KINDS:
            alike = [analysis for analysis in analyses if analysis.kind == kind]
            try:
                draw_all({folder / f"{_file(f'{a.source}-{a.file.stem}')}.{ending}": a.content for a in alike})
            except KeyError as error:
                raise ValueError(f"{alike[0].file.parent}: an analysis of the kind {kind!r} has no {error}") from error
    return len(ENDINGS) * (len(evaluated) + len(analyses))


def _file(name: str) -> str:
    """A name that is a file's name on every machine."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
