"""The pictures of the findings of studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...pictures import Picture
from ...pictures.page import plotly
from ...studies import kinds, pictures, study_of
from ..collect import Analysis


def drawn(analyses: Sequence[Analysis]) -> tuple[list[tuple[Analysis, Picture]], list[str]]:
    """Each analysis with its picture, grouped by kind, and notes on analyses that cannot be drawn."""
    order = list(kinds())
    good, wrong = [], []
    for analysis in sorted(analyses, key=lambda a: order.index(a.kind) if a.kind in order else len(order)):
        try:
            plotly(study_of(analysis.content).picture(_titled(analysis)))
            good.append(analysis)
        except KeyError as error:
            wrong.append(f"left out: {analysis.file} has no {error}")
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            wrong.append(f"left out: {analysis.file}: {error}")
    return list(zip(good, pictures([_titled(analysis) for analysis in good]), strict=True)), wrong


def _titled(analysis: Analysis) -> dict[str, Any]:
    return analysis.content | {"title": analysis.title}
