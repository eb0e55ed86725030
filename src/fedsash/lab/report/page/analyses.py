"""The pictures of the findings of studies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....runs.pictures import Picture
from ...studies import kinds, pictures, study_of
from ..collect import Analysis
from .noted import drawn_or_noted


def drawn(analyses: Sequence[Analysis]) -> tuple[list[tuple[Analysis, Picture]], list[str]]:
    """Each analysis with its picture, grouped by kind, and notes on analyses that cannot be drawn."""
    order = list(kinds())
    good = []
    wrong = list[str]()
    for analysis in sorted(analyses, key=lambda a: order.index(a.kind) if a.kind in order else len(order)):
        if drawn_or_noted(analysis.file, partial(_picture, analysis), wrong):
            good.append(analysis)
    return list(zip(good, pictures([_titled(analysis) for analysis in good]), strict=True)), wrong


def _picture(analysis: Analysis) -> Picture:
    return study_of(analysis.content).picture(_titled(analysis))


def _titled(analysis: Analysis) -> dict[str, Any]:
    return analysis.content | {"title": analysis.title}
