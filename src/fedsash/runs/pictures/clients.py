"""Each client's own result, from the worst to the best: every model, on every split that clients score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...evaluation import SPLITS
from ...settings.errors import shortened
from ...tasks import Criterion
from .curves import capital
from .picture import Axis, Bars, Line, Panel, Picture
from .styles import GREY, QUIET, look, of_bars

Results = Mapping[str, Sequence[float | None]]
"""The result of each client, by model."""
FEW = 15
NAME = 14
"""At most so many clients have bars of their own, below names of so many letters."""
MOST = 200
"""At most so many points in a line; of more clients, some that are evenly spaced among the sorted ones are drawn."""


def clients(content: Mapping[str, Any], criterion: Criterion) -> Picture:
    """The results in `client_results.content`, from the worst client to the best, one panel for each split.

    A few clients have a bar for each model, in the order of the global model's results; those where it has none are the
    first. Of more clients each model is a line of its sorted results.

    Clients without any result are left out. Raises `ValueError` if the content is something else.
    """
    few = len(content["clients"]) <= FEW
    panels = [
        replace(panel, name=f"{panel.name}, after round {content['round']}")
        for split, models in content["splits"].items()
        for panel in [_bars(split, models, content["clients"], criterion) if few else _panel(split, models, criterion)]
    ]
    caption = f"The {criterion.name} of each client, sorted from the worst to the best"
    caption += (
        " by the global model."
        if few
        else ". Each line is sorted by itself, so two lines need not show the same client at one place."
    )
    return Picture(f"{capital(criterion.name)} of each client", panels, columns=2, caption=caption)


def _bars(
    split: str, models: Mapping[str, Sequence[float | None]], names: Sequence[Any], criterion: Criterion
) -> Panel:
    first = next(iter(models.values()))
    columns = list(zip(*models.values(), strict=True))
    known = [i for i, column in enumerate(columns) if any(map(_known, column))]
    order = sorted(known, key=lambda i: _goodness(first[i], criterion))
    heights = [criterion.drawn(values[i] for i in order) for values in models.values()]
    shades = iter(of_bars(len(models) - ("model" in models)))
    colours = [GREY if model == "model" else next(shades) for model in models]
    ticks = {float(place): shortened(str(names[i]), NAME) for place, i in enumerate(order)}
    x = Axis("client", -0.7, len(order) - 0.3, ticks)
    bars = Bars(list(models), range(len(order)), heights, colours)
    return Panel(SPLITS[split], x, Axis(criterion.label()), [bars], 4.5, 3.5)


def _goodness(value: float | None, criterion: Criterion) -> float:
    """Higher is better; what is not known comes before the worst."""
    return -criterion.error_of(value) if value is not None and _known(value) else -math.inf


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _panel(split: str, models: Results, criterion: Criterion) -> Panel:
    averages = [model for model in models if model != "model"]
    lines = []
    for model, values in sorted(models.items(), key=lambda item: item[0] != "model"):
        style = QUIET if model == "model" else look(averages.index(model))
        lines.append(_line(model, values, criterion, style))
    return Panel(SPLITS[split], Axis("clients, worst first (%)", 0, 100), Axis(criterion.label()), lines, 4.5, 3.5)


def _line(name: str, values: Sequence[float | None], criterion: Criterion, style: Any) -> Line:
    defined = [value for value in values if value is not None and _known(value)]
    ordered = sorted(defined, reverse=criterion.better == "lower")
    count = len(ordered)
    shown = range(count) if count <= MOST else [round(i * (count - 1) / (MOST - 1)) for i in range(MOST)]
    x = [100 * (place + 0.5) / count for place in shown]
    return Line(name, x, [criterion.scale * ordered[place] for place in shown], style)
