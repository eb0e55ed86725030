"""Each client's own result, from the worst to the best: every model, on every split that clients score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from ...evaluation import SPLITS
from ...settings.errors import shortened
from ...tasks import Criterion
from .curves import capital
from .picture import Axis, Bars, Line, Panel, Picture
from .styles import GREY, QUIET, Style, look, of_bars

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
    names = content["clients"]
    few = len(names) <= FEW
    panels = []
    for split, models in content["splits"].items():
        title = f"{SPLITS[split]}, after round {content['round']}"
        if few:
            panels.append(_bars(title, models, names, criterion))
        else:
            panels.append(_lines(title, models, criterion))
    caption = f"The {criterion.name} of each client, sorted from the worst to the best"
    if few:
        caption += " by the global model."
    else:
        caption += ". Each line is sorted by itself, so two lines need not show the same client at one place."
    return Picture(f"{capital(criterion.name)} of each client", panels, columns=2, caption=caption)


def _bars(title: str, models: Results, names: Sequence[Any], criterion: Criterion) -> Panel:
    """A panel with a bar for each client and model, ordered by the results of the first model."""
    first = next(iter(models.values()))
    results_by_client = zip(*models.values(), strict=True)
    clients = [client for client, results in enumerate(results_by_client) if any(map(_known, results))]
    clients.sort(key=lambda client: _goodness(first[client], criterion))
    heights = []
    for values in models.values():
        heights.append(criterion.drawn(values[client] for client in clients))
    ticks = {}
    for place, client in enumerate(clients):
        ticks[float(place)] = shortened(str(names[client]), NAME)
    x = Axis("client", -0.7, len(clients) - 0.3, ticks)
    bars = Bars(list(models), range(len(clients)), heights, _bar_colours(models))
    return Panel(title, x, Axis(criterion.label()), [bars], 4.5, 3.5)


def _bar_colours(models: Results) -> list[str]:
    """A colour for each model: grey for the global model, so that the averages stand out."""
    averages = [model for model in models if model != "model"]
    colours = dict(zip(averages, of_bars(len(averages)), strict=True))
    return [colours.get(model, GREY) for model in models]


def _goodness(value: float | None, criterion: Criterion) -> float:
    """A number that is higher for a better value. A client without a result comes before the worst one."""
    if not _known(value):
        return -math.inf
    return -criterion.error_of(value)


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)


def _lines(title: str, models: Results, criterion: Criterion) -> Panel:
    """A panel with a line of sorted results for each model. The global model is first, so that averages lie on it."""
    x = Axis("clients, worst first (%)", 0, 100)
    lines = []
    if "model" in models:
        lines.append(_line("model", models["model"], criterion, QUIET))
    averages = [model for model in models if model != "model"]
    for i, model in enumerate(averages):
        lines.append(_line(model, models[model], criterion, look(i)))
    return Panel(title, x, Axis(criterion.label()), lines, 4.5, 3.5)


def _line(name: str, results: Sequence[float | None], criterion: Criterion, style: Style) -> Line:
    values = [value for value in results if _known(value)]
    values.sort(reverse=criterion.better == "lower")
    count = len(values)
    places: Sequence[int] = range(count)
    if count > MOST:
        places = [round(i * (count - 1) / (MOST - 1)) for i in range(MOST)]
    x = [100 * (place + 0.5) / count for place in places]
    y = [criterion.scale * values[place] for place in places]
    return Line(name, x, y, style)
