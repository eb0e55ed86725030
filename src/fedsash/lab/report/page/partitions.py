"""Who holds what: bubbles of clients and classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .collect import Run
from .figures import Figure, axis, plain, view

BUBBLES = 3000
"""The most clients times classes that are drawn as bubbles; more are a map of colours."""
CLIENTS = 500
"""The most clients that are drawn."""


def partition(runs: Sequence[Run], notes: list[str]) -> Figure | None:
    """A view for each partition that differs from the others; None if no run has written one."""
    known: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for run in runs:
        if run.partition is not None:
            known.setdefault(json.dumps(run.partition, sort_keys=True), ([], run.partition))[0].append(run.name)
    views, sizes = [], []
    for names, content in known.values():
        try:
            label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
            views.append(_view(label if len(known) > 1 else "partition", content))
            sizes += [sum(counts) for counts in content["counts"]]
        except (KeyError, TypeError, ValueError) as error:
            notes.append(f"the partition of {names[0]} is left out: {error!r}")
    if not views:
        return None
    first = next(iter(known.values()))[1]
    clients, drawn = len(first["counts"]), min(len(first["counts"]), CLIENTS)
    caption = (
        f"How many training samples of each class each of the {clients} clients holds: {min(sizes)} to {max(sizes)} "
        f"samples a client. The area of a bubble, or the colour of a field, is the number of samples."
        + (f" The first {drawn} clients are drawn." if drawn < clients else "")
    )
    return Figure("Partition", caption, views, height=max(300, min(620, 130 + 26 * len(first["classes"]))))


def _view(label: str, content: dict[str, Any]) -> dict[str, Any]:
    classes, counts = [str(name) for name in content["classes"]], content["counts"][:CLIENTS]
    if any(len(of_client) != len(classes) for of_client in counts) or not counts:
        raise ValueError("every client must have a count for each class")
    places = list(range(len(classes)))
    step = max(1, len(classes) // 20)
    ticks = {"tickvals": places[::step], "ticktext": [plain(name) for name in classes[::step]]}
    draw = _bubbles if len(counts) * len(classes) <= BUBBLES else _map
    width = {"range": [-1, len(counts)]}
    return view(label, [draw(counts)], xaxis=axis("client") | width, yaxis=axis("class") | ticks)


def _bubbles(counts: list[list[int]]) -> dict[str, Any]:
    held = [(k, c, n) for k, of_client in enumerate(counts) for c, n in enumerate(of_client) if n]
    x, y, size = (list(column) for column in zip(*held, strict=True)) if held else ([], [], [])
    marker = {"size": size, "sizemode": "area", "sizeref": max(size, default=1) / 200, "sizemin": 1.5}
    text = "client %{x}: %{marker.size} samples of class %{y}<extra></extra>"
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "hovertemplate": text,
        "marker": marker | {"color": "#0072B2", "opacity": 0.75, "line": {"width": 0}},
    }


def _map(counts: list[list[int]]) -> dict[str, Any]:
    text = "client %{x}: %{z} samples of class %{y}<extra></extra>"
    z = [list(of_class) for of_class in zip(*counts, strict=True)]
    bar = {"title": {"text": "samples", "side": "right"}, "thickness": 12, "outlinewidth": 0}
    return {"type": "heatmap", "z": z, "colorscale": "Cividis", "hovertemplate": text, "colorbar": bar}
