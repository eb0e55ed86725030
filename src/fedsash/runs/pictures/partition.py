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
"""At most so many clients are named on their axis."""
LETTERS = 12
"""A longer name of a client is cut."""
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
    if not counts or any(len(row) != len(classes) for row in counts):
        raise ValueError("every client must have a count for each class")
    shown = min(len(counts), DRAWN)
    x = _client_axis(shown, content.get("clients", []))
    width = min(max(0.11 * shown + 2, 7), 13)
    colours = many(len(classes))
    labels = [sum(row) for row in counts]
    sizes = content.get("sizes", labels)
    unit = "samples" if sizes == labels else "labels"
    class_height = min(max(0.26 * len(classes), 2.4), 9)
    panels = [
        Panel(f"{unit} of each client", x, Axis(unit, 0), [_bars(counts, classes, colours)], width, 1.6),
        _dots(counts, classes, colours, "class", x, (width, class_height)),
    ]
    if domains := content.get("domains"):
        domain_height = 0.26 * len(domains) + 0.3
        domain_colours = [INK] * len(domains)
        panels.append(_dots(content["domain_counts"], domains, domain_colours, "domain", x, (width, domain_height)))
    title = _title(counts, len(classes), shown)
    caption = f"{title}; {min(sizes):,} to {max(sizes):,} training samples a client. {AREA}"
    return Picture(title, panels, caption=caption)


def _title(counts: Counts, classes: int, shown: int) -> str:
    title = f"{len(counts):,} clients"
    if classes > 1:
        classes_held = fmean(sum(count > 0 for count in row) for row in counts)
        title += f", {classes_held:.1f} of {classes} classes each on average"
    if shown < len(counts):
        title += f", the first {shown} drawn"
    return title


def _client_axis(shown: int, names: Sequence[Any]) -> Axis:
    """The axis of the clients that are shown, with their names if there are only a few and they have names."""
    ticks: dict[float, str] = {}
    if shown <= FEW:
        for client, name in enumerate(names):
            ticks[client] = shortened(str(name), LETTERS)
    return Axis("client", -0.7, shown - 0.3, ticks or None, whole=True)


def _bars(counts: Counts, classes: Sequence[str], colours: Sequence[str]) -> Bars:
    """A bar for each client, with its samples or labels of each class stacked."""
    heights = _by_class(counts)
    return Bars(classes, range(len(heights[0])), heights, colours, stacked=True)


def _dots(
    counts: Counts, names: Sequence[str], colours: Sequence[str], what: str, x: Axis, size: tuple[float, float]
) -> Panel:
    """A panel of `size` in inches with a dot for each class, or domain, of which a client has samples."""
    ticks: dict[float, str] | None = None
    if len(names) <= NAMED:
        ticks = {place: str(name) for place, name in enumerate(names)}
    y = Axis(what, len(names) - 0.3, -0.7, ticks, whole=True)
    dots = Dots(_by_class(counts), colours)
    return Panel(f"{what} of each client's samples", x, y, [dots], *size)


def _by_class(counts: Counts) -> list[list[int]]:
    """The counts of the clients that are drawn, with a row for each class, or domain, instead of each client."""
    return [list(column) for column in zip(*counts[:DRAWN], strict=True)]
