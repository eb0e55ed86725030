"""Each client's own result, sorted: every model, on every split that clients score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...evaluation import SPLITS
from ...tasks import Criterion
from .curves import capital
from .picture import Axis, Line, Panel, Picture
from .styles import QUIET, look

MOST = 200
"""At most so many points in a line; of more clients, some that are evenly spaced among the sorted ones are drawn."""


def clients(content: Mapping[str, Any], criterion: Criterion) -> Picture:
    """The results in `client_results.content`, sorted from the worst client to the best, one panel for each split.

    Clients without a result are left out. Raises `ValueError` if the content is something else.
    """
    panels = [_panel(split, models, criterion) for split, models in content["splits"].items()]
    caption = (
        f"The {criterion.name} of each client after round {content['round']}, sorted from the worst to the best. Each "
        "line is sorted by itself, so two lines need not show the same client at one place."
    )
    return Picture(f"{capital(criterion.name)} of each client", panels, columns=2, caption=caption)


def _panel(split: str, models: Mapping[str, Sequence[float | None]], criterion: Criterion) -> Panel:
    averages = [model for model in models if model != "model"]
    lines = []
    for model, values in sorted(models.items(), key=lambda item: item[0] != "model"):
        style = QUIET if model == "model" else look(averages.index(model))
        lines.append(_line(model, values, criterion, style))
    label = f"{criterion.name} (%)" if criterion.share else criterion.name
    return Panel(SPLITS[split], Axis("clients, worst first (%)", 0, 100), Axis(label), lines, 4.5, 3.5)


def _line(name: str, values: Sequence[float | None], criterion: Criterion, style: Any) -> Line:
    defined = [value for value in values if value is not None and not math.isnan(value)]
    ordered = sorted(defined, reverse=criterion.better == "lower")
    count = len(ordered)
    shown = range(count) if count <= MOST else [round(i * (count - 1) / (MOST - 1)) for i in range(MOST)]
    x = [100 * (place + 0.5) / count for place in shown]
    return Line(name, x, [criterion.scale * ordered[place] for place in shown], style)
