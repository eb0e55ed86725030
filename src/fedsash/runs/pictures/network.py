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
"""The most clients in a time line."""
SHOWN = 1000
"""The most intervals in a time line."""
BINS = 200
"""The number of bins of time for the link's use."""
AGAINST = {"time": "seconds", "trips": "client trips"}
"""The labels of the axes against which progress is drawn, by the name of the measure in `NetworkLoad`."""


def timeline(content: Mapping[str, Any], name: str = "who does what when") -> Picture:
    """Which client trains, uploads and waits when: one row for each client, from the run's beginning."""
    intervals = [interval for interval in content["intervals"] if interval[0] < CLIENTS][:SHOWN]
    clients = 1 + max((client for client, *_ in intervals), default=0)
    layers = []
    for activity in ACTIVITIES:
        spans = _spans(activity, intervals)
        if spans.rows:
            layers.append(spans)
    x = Axis("seconds", 0)
    y = Axis("client", clients - 0.4, -0.6, whole=True)
    height = max(1.6, 0.22 * clients + 0.8)
    panel = Panel(name, x, y, layers, 9, height)
    caption = (
        f"Who trains, uploads, fails to upload, downloads and waits, from the beginning: at most {CLIENTS} clients and "
        f"{SHOWN:,} intervals."
    )
    return Picture("Who does what when", [panel], caption=caption)


def _spans(activity: str, intervals: Sequence[Sequence[Any]]) -> Spans:
    """The intervals of one activity. Each interval has a client, an activity, a begin and an end."""
    clients = []
    begins = []
    ends = []
    for client, what, begin, end in intervals:
        if what == activity:
            clients.append(client)
            begins.append(begin)
            ends.append(end)
    colour, height = ACTIVITIES[activity]
    return Spans(activity, clients, begins, ends, colour, height)


def link(contents: Mapping[str, Mapping[str, Any]]) -> Picture:
    """The use of the link in per cent, and the size of the client window if there is one. One line for each run.

    In real time nobody knows the link, and its panel is empty.
    """
    seconds = Axis("seconds", 0, max(content["until"] for content in contents.values()) or 1)
    single = len(contents) == 1
    use_lines = []
    size_lines = []
    largest = 0.0
    for i, (run, content) in enumerate(contents.items()):
        style = replace(look(i), dash=DASHES[i % len(DASHES)])
        edges, use = link_use(content)
        use_lines.append(Line(run, edges, use, Style(GREEN) if single else style, steps="after", filled=single))
        if content["window"]:
            times, sizes = _window_sizes(content)
            size_lines.append(Line(run, times, sizes, style, steps="after"))
            largest = max(largest, *sizes)
    panels = [Panel("the link's use", seconds, Axis("link in use (%)", 0, 105), use_lines, 9, 2.4)]
    title = "The link's use"
    caption = "The share of the link's rate that uploads used, as a mean over intervals of time"
    if size_lines:
        size_axis = Axis("window W", 0, 1.1 * largest, whole=True)
        panels.append(Panel("the window's size", seconds, size_axis, size_lines, 9, 2.4))
        title = "The link and the window"
        caption += "; and how many clients are in the window, W"
    return Picture(title, panels, caption=f"{caption}.")


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


def _window_sizes(content: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """The times at which the client window changes its size, and the sizes from then on.

    The last time is the run's end; it repeats the last size.
    """
    times = [time for time, _ in content["window"]]
    sizes = [size for _, size in content["window"]]
    return [*times, content["until"]], [*sizes, sizes[-1]]


def progress(curves: Curves, loads: Mapping[int, NetworkLoad]) -> Picture:
    """Each model's values against simulated time and client trips.

    `loads` has the `time` and the `trips` of each evaluated round.
    """
    panels = []
    criterion = curves.criterion
    for measure, label in AGAINST.items():
        at = {round: load.measures[measure] for round, load in loads.items()}
        whole = panel(f"against {label}", lines(curves, at=at), criterion, criterion.target, along=label)
        panels.append(replace(whole, height=3.6))
    return over_time(curves, panels)


def over_time(curves: Curves, panels: Sequence[Panel]) -> Picture:
    """The picture of panels against time and client trips."""
    below = beyond(panels)
    caption = " ".join([f"{capital(curves.title)} against the time that it took, and client trips.", *below])
    title = f"{capital(curves.criterion.name)} over time and trips"
    return Picture(title, list(panels), caption=caption, below=below)
