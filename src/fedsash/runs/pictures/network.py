"""A run on a network: the clients' activities, the link, the client window, the metric against time and trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...evaluation import Curves, NetworkLoad
from .curves import beyond, capital, lines, panel
from .picture import Axis, Line, Panel, Picture, Spans
from .styles import BLUE, DASHES, GREEN, RED, SKY, Style, look

ACTIVITIES = {
    "train": (BLUE, 0.85),
    "upload": (GREEN, 0.6),
    "failed": (RED, 0.85),
    "download": (SKY, 0.4),
    "wait": ("#DDDDDD", 0.15),
}
"""The colour and the height of each activity of a client. The height distinguishes activities without colour."""
CLIENTS = 30
SHOWN = 1000
BINS = 200
"""The most clients and intervals in a time line, and the number of bins for the link's use."""
AGAINST = {"time": "seconds", "trips": "client trips"}


def timeline(content: Mapping[str, Any], name: str = "who does what when") -> Picture:
    """Which client trains, uploads and waits when: one row for each client, from the run's beginning."""
    known = [row for row in content["intervals"] if row[0] < CLIENTS][: SHOWN + CLIENTS]
    clients = 1 + max((row[0] for row in known), default=0)
    layers = [_spans(what, [row for row in known if row[1] == what]) for what in ACTIVITIES]
    y = Axis("client", clients - 0.4, -0.6, whole=True)
    x = Axis("seconds", 0)
    one = Panel(name, x, y, [spans for spans in layers if spans.rows], 9, max(1.6, 0.22 * clients + 0.8))
    caption = (
        f"Who trains, uploads, fails to upload, downloads and waits, from the beginning: at most {CLIENTS} clients and "
        f"{SHOWN:,} intervals."
    )
    return Picture("Who does what when", [one], caption=caption)


def _spans(what: str, known: list[Any]) -> Spans:
    colour, height = ACTIVITIES[what]
    rows, begins, ends = ([row[i] for row in known] for i in (0, 2, 3))
    return Spans(what, rows, begins, ends, colour, height)


def link(contents: Mapping[str, Mapping[str, Any]]) -> Picture:
    """The use of the link in per cent, and the size of the client window if there is one. One line for each run.

    In real time nobody knows the link, and its panel is empty.
    """
    x = Axis("seconds", 0, max(content["until"] for content in contents.values()) or 1)
    one = len(contents) == 1
    dashed = [replace(look(i), dash=DASHES[i % len(DASHES)]) for i in range(len(contents))]
    styles = dict(zip(contents, [Style(GREEN)] if one else dashed, strict=True))
    used = [Line(run, *link_use(content), styles[run], steps="after", filled=one) for run, content in contents.items()]
    panels = [Panel("the link's use", x, Axis("link in use (%)", 0, 105), used, 9, 2.4)]
    windows = {run: content for run, content in contents.items() if content["window"]}
    if windows:
        styles = {run: look(0) if one else styles[run] for run in windows}
        sizes = [Line(run, *_sizes(content), styles[run], steps="after") for run, content in windows.items()]
        most = max(size for content in windows.values() for _, size in content["window"])
        panels.append(Panel("the window's size", x, Axis("window W", 0, 1.1 * most, whole=True), sizes, 9, 2.4))
    caption = "The share of the link's rate that uploads used, as a mean over intervals of time"
    return Picture(
        "The link and the window" if windows else "The link's use",
        panels,
        caption=f"{caption}; and how many clients are in the window, W." if windows else f"{caption}.",
    )


def link_use(content: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """The edges of bins of time, and for each bin the use of the link in per cent of the time.

    The last edge repeats the value of the last bin. Both are empty if nothing was sent.
    """
    import numpy as np

    until = content["until"]
    if not content["carried"] or until <= 0:
        return [], []
    times, carried = np.array([(0.0, 0.0), *content["carried"]]).T
    edges = np.linspace(0, until, min(BINS, len(times)) + 1)
    use = 100 * np.diff(np.interp(edges, times, carried)) / np.diff(edges) / content["rate"]
    return edges.tolist(), [*use.tolist(), float(use[-1])]


def _sizes(content: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """The times at which the client window changes its size, with the sizes, and the end of time."""
    times, sizes = ([row[i] for row in content["window"]] for i in (0, 1))
    return [*times, content["until"]], [*sizes, sizes[-1]]


def progress(found: Curves, loads: Mapping[int, NetworkLoad]) -> Picture:
    """Each model's values against simulated time and client trips.

    `loads` has the `time` and the `trips` of each evaluated round.
    """
    panels = []
    for key, along in AGAINST.items():
        at = {round: load.measures[key] for round, load in loads.items()}
        one = panel(f"against {along}", lines(found, at=at), found.criterion, found.criterion.target, along=along)
        panels.append(replace(one, height=3.6))
    return over_time(found, panels)


def over_time(found: Curves, panels: Sequence[Panel]) -> Picture:
    """The picture of panels against time and client trips."""
    below = beyond(panels)
    caption = " ".join([f"{capital(found.title)} against the time that it took, and client trips.", *below])
    title = f"{capital(found.criterion.name)} over time and trips"
    return Picture(title, list(panels), caption=caption, below=below)
