"""What a partition looks like: clients x labels, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .federated import FederatedData
from .partitions.common import Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 20
"""How many clients a table shows; of more, the first and the last half of these."""
COLUMNS = 12
"""How many classes a table has columns for; of more, it names the largest few of each client."""
DRAWN = 200
"""How many clients a picture shows; of more, the first ones."""


def table(data: FederatedData) -> str:
    """Clients x labels as text: a summary, then a row a client with its number of samples of each class."""
    counts, names = data.counts(), _names(data)
    rows = _columns(counts, names) if data.classes <= COLUMNS else _largest(counts, names)
    if len(counts) > ROWS:
        rows = [*rows[: 1 + ROWS // 2], "   ...", *rows[-ROWS // 2 :]]
    return "\n".join([*_summary(data, counts), "", *rows])


def _names(data: FederatedData) -> list[str]:
    return list(data.label_names) or [str(c) for c in range(data.classes)]


def _summary(data: FederatedData, counts: Ints) -> list[str]:
    sizes, held = data.sizes, (counts > 0).sum(axis=1)
    times = np.bincount(np.concatenate(data.clients), minlength=len(data.train))
    lines = [
        f"{len(sizes):,} clients, {data.classes} classes, {len(data.train):,} training samples",
        f"samples a client: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
        f"classes a client: {held.min()} to {held.max()}, mean {held.mean():.2f}",
    ]
    if (times != 1).any():
        lines.append(f"not used: {(times == 0).sum():,} samples; used more than once: {(times > 1).sum():,}")
    return lines


def _columns(counts: Ints, names: list[str]) -> list[str]:
    heads = [name if len(name) <= 9 else f"{name[:8]}…" for name in names]
    widths = [max(len(head), len(f"{column.max():,}")) for head, column in zip(heads, counts.T, strict=True)]
    lines = ["client  samples  " + "  ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]
    for i, row in enumerate(counts):
        cells = "  ".join(
            f"{n:>{width},}" if n else " " * (width - 1) + "·" for n, width in zip(row, widths, strict=True)
        )
        lines.append(f"{i:>6}  {row.sum():>7,}  {cells}")
    return lines


def _largest(counts: Ints, names: list[str], shown: int = 5) -> list[str]:
    lines = ["client  samples  classes  largest classes"]
    for i, row in enumerate(counts):
        held = int((row > 0).sum())
        top = np.argsort(-row, kind="stable")[: min(held, shown)]
        rest = ", …" if held > shown else ""
        lines.append(f"{i:>6}  {row.sum():>7,}  {held:>7}  " + ", ".join(f"{names[c]}: {row[c]:,}" for c in top) + rest)
    return lines


def picture(data: FederatedData, path: str | Path) -> None:
    """Draw clients x labels: bars of each client's samples, and below them a dot for each class that it holds.

    A dot's area is the class's share of the client's samples. Writes a PNG (or whatever the ending of `path` says).
    Raises `ImportError` without matplotlib.
    """
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    everyone = data.counts()
    counts = everyone[:DRAWN]
    n, classes = counts.shape
    palette = colormaps["tab10" if classes <= 10 else "turbo"]
    colours = [palette(c if classes <= 10 else c / (classes - 1)) for c in range(classes)]

    width = float(np.clip(0.11 * n + 2, 7, 13))
    height = float(np.clip(0.26 * classes, 2.4, 9))
    figure = Figure(figsize=(width, height + 2.4), layout="constrained", dpi=120)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.4, height])

    client, label = np.nonzero(counts)
    shown = [colours[c] for c in label]
    top = counts.cumsum(axis=1)
    low, high = (top - counts)[client, label], top[client, label]
    corners = [(client - 0.4, low), (client + 0.4, low), (client + 0.4, high), (client - 0.4, high)]
    above.add_collection(PolyCollection(list(np.array(corners).transpose(2, 0, 1)), facecolors=shown))
    above.set_ylim(0, 1.05 * top.max())
    above.set_ylabel("samples")

    across, down = 0.85 * width * 72 / n, 0.85 * height * 72 / classes  # points between neighbouring dots
    area = 0.8 * max(across, 6) * max(down, 6) * (counts / counts.sum(axis=1, keepdims=True))[client, label]
    below.scatter(client, label, s=np.maximum(area, 2), color=shown, linewidths=0)
    below.set_ylim(classes - 0.3, -0.7)
    below.set_xlim(-0.7, n - 0.3)
    below.set_xlabel("client" if n == len(everyone) else f"client (the first {n} of {len(everyone):,})")
    if classes <= 30:
        below.set_yticks(range(classes), _names(data))
    else:
        below.set_ylabel("class")
    held = (everyone > 0).sum(axis=1).mean()
    above.set_title(f"{len(everyone):,} clients, {held:.1f} of {classes} classes each on average", loc="left")
    for axes in (above, below):
        _plain(axes)
    figure.savefig(path)


def _plain(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=20, steps=[1, 2, 5, 10], integer=True))
    axes.grid(axis="y", color="0.93")
    axes.set_axisbelow(True)
