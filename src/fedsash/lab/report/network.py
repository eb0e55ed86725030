"""Pictures of a run on a network: who does what when, the link and the window, accuracy against time and trips."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records import replace_file, write_json
from .curves import COLOURS as LINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"train": "#0072B2", "upload": "#009E73", "failed": "#D55E00", "download": "#56B4E9", "wait": "#DDDDDD"}
"""From the palette of Okabe and Ito, which colour-blind people can tell apart."""
CLIENTS, SHOWN, BINS = 30, 400, 200
"""A time line shows so many clients, and so many intervals of theirs; the link's use is a mean over so many bins."""


def shown(content: dict[str, Any], most: int = SHOWN) -> list[tuple[int, str, float, float]]:
    """The first intervals of the first clients: client, what it is at, from when, and until when."""
    return [tuple(row) for row in content["intervals"] if row[0] < CLIENTS][: most + CLIENTS]


def link_use(content: dict[str, Any]) -> tuple[list[float], list[float]]:
    """The edges of bins of time, and the share of each in which the link was in use; empty if nothing was sent."""
    import numpy as np

    until = content["until"]
    if not content["carried"] or until <= 0:
        return [], []
    times, carried = np.array([(0.0, 0.0), *content["carried"]]).T
    edges = np.linspace(0, until, min(BINS, len(times)) + 1)
    use = np.diff(np.interp(edges, times, carried)) / np.diff(edges) / content["rate"]
    return edges.tolist(), use.tolist()


def write_timeline(found: dict[str, Any], folder: Path, history: list[dict[str, Any]], target: float) -> None:
    """Write `timeline.json` and the pictures of a run on a network."""
    write_json(folder / "timeline.json", found)
    timeline(found, folder / "timeline.png")
    link(found, folder / "link.png")
    if any(row["split"] == "test" for row in history):
        accuracy(history, folder / "accuracy.png", target)


def timeline(content: dict[str, Any], path: Path | str) -> None:
    """Draw who trains, uploads and waits: a row a client, from the run's beginning."""
    from matplotlib.ticker import MaxNLocator

    intervals = shown(content)
    clients = max((row[0] for row in intervals), default=0) + 1
    figure, axes = _figure(1, max(2.0, 0.22 * clients + 1.2))
    for what, colour in COLOURS.items():
        for client in range(clients):
            spans = [(began, end - began) for c, w, began, end in intervals if c == client and w == what]
            if spans:
                axes[0].broken_barh(spans, (client - 0.4, 0.8), facecolors=colour, edgecolor="white", linewidth=0.2)
        axes[0].plot([], [], color=colour, linewidth=6, label=what)
    axes[0].set_ylabel("client")
    axes[0].set_ylim(clients - 0.5, -0.5)
    axes[0].yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_xlabel("seconds")
    axes[0].legend(ncols=len(COLOURS), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    _save(figure, path)


def link(content: dict[str, Any], path: Path | str) -> None:
    """Draw the share of time in which the link was in use, and the window's size if there is one."""
    window = content["window"]
    figure, axes = _figure(2 if window else 1, 4.5 if window else 2.5)
    until = content["until"]
    edges, use = link_use(content)
    if use:
        axes[0].stairs([100 * share for share in use], edges, fill=True, color="#009E73", alpha=0.7)
    axes[0].set_ylim(0, 105)
    axes[0].set_ylabel("link in use (%)")
    if window:
        times, sizes = zip(*window, strict=True)
        axes[1].step([*times, until], [*sizes, sizes[-1]], where="post", color="#0072B2", linewidth=1)
        axes[1].set_ylim(0, 1.1 * max(sizes))
        axes[1].set_ylabel("window W")
    axes[-1].set_xlabel("seconds")
    _save(figure, path)


def accuracy(history: list[dict[str, Any]], path: Path | str, target: float | None = None) -> None:
    """Draw each model's accuracy on the test set against simulated time and against client trips."""
    rows = [row for row in history if row["split"] == "test"]
    figure, axes = _figure(2, 6.0, sharex=False)
    for axis, key, label in zip(axes, ("time", "trips"), ("seconds", "client trips"), strict=True):
        for i, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
            points = [(row[key], 100 * row["accuracy"]) for row in rows if row["model"] == model]
            axis.plot(*zip(*points, strict=True), color=LINES[i % len(LINES)], label=model, linewidth=1.2)
        if target is not None:
            axis.axhline(100 * target, color="0.4", linestyle=":", linewidth=1)
        axis.set_xlabel(label)
        axis.set_ylabel("accuracy (%)")
        axis.legend(frameon=False)
    _save(figure, path)


def _figure(rows: int, height: float, sharex: bool = True) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained", dpi=100)
    axes = list(figure.subplots(rows, squeeze=False, sharex=sharex)[:, 0])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path | str) -> None:
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix[1:] or "png")
    replace_file(path, content.getvalue())
