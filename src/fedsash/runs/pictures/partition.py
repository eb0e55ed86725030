"""A partition: each client's samples of each class, and of each domain if there are domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ...settings.errors import shortened
from .picture import Axis, Bars, Dots, Panel, Picture
from .styles import INK, many

DRAWN = 200
"""The most clients in a picture. If there are more, it shows the first ones."""
FEW = 12
LETTERS = 12
"""At most so many clients are named, with so many letters."""
NAMED = 30
"""At most this many classes are named on their axis."""
AREA = "The area of a dot is the class's share of the client's labels."
Counts = Sequence[Sequence[int]]
"""Clients x classes, or clients x domains."""


def partition(content: Mapping[str, Any]) -> Picture:
    """A partition from `partition.record`: bars of each client's labels, and below them a dot for each class it holds.

    A sample of a classification has one label; others have several, such as one for each token. A dot's area is the
    class's share of the client's labels. If samples have domains, the same is drawn for domains. Raises `ValueError` if
    a client lacks a count for a class.
    """
    counts: Counts = content["counts"]
    classes = [str(name) for name in content["classes"]]
    if not counts or any(len(of_client) != len(classes) for of_client in counts):
        raise ValueError("every client must have a count for each class")
    shown = min(len(counts), DRAWN)
    clients = content.get("clients", []) if shown <= FEW else []
    ticks: Mapping[float, str] = {place: shortened(str(name), LETTERS) for place, name in enumerate(clients)}
    x = Axis("client", -0.7, shown - 0.3, ticks or None, whole=True)
    width = min(max(0.11 * shown + 2, 7), 13)
    colours = many(len(classes))
    rows = [(counts, classes, colours, "class", min(max(0.26 * len(classes), 2.4), 9))]
    if domains := content.get("domains"):
        rows.append((content["domain_counts"], domains, [INK] * len(domains), "domain", 0.26 * len(domains) + 0.3))
    title = f"{len(counts):,} clients"
    if len(classes) > 1:
        held = fmean(sum(n > 0 for n in of_client) for of_client in counts)
        title += f", {held:.1f} of {len(classes)} classes each on average"
    title += f", the first {shown} drawn" if shown < len(counts) else ""
    panels = [_held(*row, x, width) for row in rows]
    labels = [sum(of_client) for of_client in counts]
    sizes = content.get("sizes", labels)
    panels = [_bars("samples" if sizes == labels else "labels", counts, classes, colours, x, width), *panels]
    caption = f"{title}; {min(sizes):,} to {max(sizes):,} training samples a client. {AREA}"
    return Picture(title, panels, caption=caption)


def _bars(what: str, counts: Counts, classes: Sequence[str], colours: Sequence[str], x: Axis, width: float) -> Panel:
    """A bar for each client, with its samples or labels of each class stacked."""
    clients = range(min(len(counts), DRAWN))
    heights = [[counts[k][c] for k in clients] for c in range(len(classes))]
    bars = Bars(classes, clients, heights, colours, stacked=True)
    return Panel(f"{what} of each client", x, Axis(what, 0), [bars], width, 1.6)


def _held(
    counts: Counts, names: Sequence[str], colours: Sequence[str], what: str, height: float, x: Axis, width: float
) -> Panel:
    """A dot for each class, or domain, that a client holds."""
    held = [list(column) for column in zip(*counts[:DRAWN], strict=True)]
    ticks: Mapping[float, str] = {place: str(name) for place, name in enumerate(names)}
    y = Axis(what, len(names) - 0.3, -0.7, ticks if len(names) <= NAMED else None, whole=True)
    return Panel(f"{what} of each client's samples", x, y, [Dots(held, colours)], width, height)
