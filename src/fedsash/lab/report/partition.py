"""What a partition looks like: clients x labels and clients x domains, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.federated import FederatedData
from ...data.partitions.common import Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 20
"""How many clients a table shows; of more, the first and the last half of these."""
COLUMNS = 12
"""How many classes a table has columns for; of more, it names the largest few of each client."""
DRAWN = 200
"""How many clients a picture shows; of more, the first ones."""


def table(data: FederatedData) -> str:
    """Clients x labels as text: a summary, then a row a client with its number of samples of each class.

    Where samples have domains, a row also names the client's largest domain, and says how many others it has.
    """
    counts, names = data.counts(), _names(data)
    cells = _columns(counts, names) if data.classes <= COLUMNS else _largest(counts, names)
    rows = ["  ".join(row) for row in zip(*_clients(data), cells, strict=True)]
    if len(counts) > ROWS:
        rows = [*rows[: 1 + ROWS // 2], "   ...", *rows[-ROWS // 2 :]]
    return "\n".join([*_summary(data, counts), "", *rows])


def record(data: FederatedData) -> dict[str, Any]:
    """Clients x labels as a run's folder has it: `classes`, their names, and `counts` `[N, classes]`."""
    return {"classes": _names(data), "counts": data.counts()}


def _names(data: FederatedData) -> list[str]:
    return list(data.label_names) or [str(c) for c in range(data.classes)]


def _domains(data: FederatedData) -> tuple[Ints, list[str]] | None:
    """How many samples of each domain each client holds, `[N, domains]`, and the names; None where there are none."""
    if data.train.domain is None:
        return None
    domain = data.train.domain.cpu().numpy()
    names = list(data.domain_names) or [str(d) for d in range(domain.max() + 1)]
    return np.stack([np.bincount(domain[client], minlength=len(names)) for client in data.clients]), names


def _summary(data: FederatedData, counts: Ints) -> list[str]:
    sizes = data.sizes
    times = np.bincount(np.concatenate(data.clients), minlength=len(data.train))
    lines = [
        f"{len(sizes):,} clients, {data.classes} classes, {len(data.train):,} training samples",
        f"samples a client: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
        _held("classes", counts),
    ]
    if domains := _domains(data):
        lines.append(_held("domains", domains[0]))
    if (times != 1).any():
        lines.append(f"not used: {(times == 0).sum():,} samples; used more than once: {(times > 1).sum():,}")
    return lines


def _held(what: str, counts: Ints) -> str:
    held = (counts > 0).sum(axis=1)
    return f"{what} a client: {held.min()} to {held.max()}, mean {held.mean():.2f}"


def _clients(data: FederatedData) -> list[list[str]]:
    """The columns that say who a client is, each with its head."""
    columns = [["client", *(f"{i:>6}" for i in range(len(data.clients)))]]
    columns.append(["samples", *(f"{size:>7,}" for size in data.sizes)])
    if domains := _domains(data):
        counts, names = domains
        held = (counts > 0).sum(axis=1)
        cells = [names[row.argmax()] + (f" +{k - 1}" if k > 1 else "") for row, k in zip(counts, held, strict=True)]
        width = max(map(len, cells))
        columns.append([f"{cell:<{width}}" for cell in ("domain", *cells)])
    return columns


def _columns(counts: Ints, names: list[str]) -> list[str]:
    heads = [name if len(name) <= 9 else f"{name[:8]}…" for name in names]
    widths = [max(len(head), len(f"{column.max():,}")) for head, column in zip(heads, counts.T, strict=True)]
    lines = ["  ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]
    for row in counts:
        cells = [f"{n:>{width},}" if n else " " * (width - 1) + "·" for n, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells))
    return lines


def _largest(counts: Ints, names: list[str], shown: int = 5) -> list[str]:
    lines = ["classes  largest classes"]
    for row in counts:
        held = int((row > 0).sum())
        top = np.argsort(-row, kind="stable")[: min(held, shown)]
        rest = ", …" if held > shown else ""
        lines.append(f"{held:>7}  " + ", ".join(f"{names[c]}: {row[c]:,}" for c in top) + rest)
    return lines


def picture(data: FederatedData, path: str | Path) -> None:
    """Draw clients x labels: bars of each client's samples, and below them a dot for each class that it holds.

    A dot's area is in proportion to the class's share of the client's samples. Where samples have domains there are
    such dots for these, too. Writes a PNG (or whatever the ending of `path` says). Raises `ImportError` without
    matplotlib.
    """
    from matplotlib.figure import Figure

    counts, domains = data.counts(), _domains(data)
    n, classes = min(len(counts), DRAWN), data.classes
    colours = _colours(classes)
    width, heights = float(np.clip(0.11 * n + 2, 7, 13)), [1.4, float(np.clip(0.26 * classes, 2.4, 9))]
    if domains:
        heights.append(0.26 * len(domains[1]) + 0.1)
    figure = Figure(figsize=(width, sum(heights) + 1), layout="constrained", dpi=120)
    above, *below = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)

    _bars(above, counts[:n], colours)
    _dots(below[0], counts[:n], colours, (width, heights[1]))
    _rows(below[0], _names(data), "class")
    if domains:
        _dots(below[1], domains[0][:n], ["0.3"] * len(domains[1]), (width, heights[2]))
        _rows(below[1], domains[1], "domain")
    below[-1].set_xlim(-0.7, n - 0.3)
    below[-1].set_xlabel("client" if n == len(counts) else f"client (the first {n} of {len(counts):,})")
    held = (counts > 0).sum(axis=1).mean()
    above.set_title(f"{len(counts):,} clients, {held:.1f} of {classes} classes each on average", loc="left")
    for axes in (above, *below):
        _plain(axes)
    figure.savefig(path)


def _colours(classes: int) -> list[Any]:
    from matplotlib import colormaps

    palette = colormaps["tab10" if classes <= 10 else "turbo"]
    return [palette(c if classes <= 10 else c / (classes - 1)) for c in range(classes)]


def _bars(axes: Axes, counts: Ints, colours: list[Any]) -> None:
    """A bar for each client, of its samples of each class one above the other."""
    from matplotlib.collections import PolyCollection

    client, label = np.nonzero(counts)
    top = counts.cumsum(axis=1)
    low, high = (top - counts)[client, label], top[client, label]
    corners = [(client - 0.4, low), (client + 0.4, low), (client + 0.4, high), (client - 0.4, high)]
    boxes = list(np.array(corners).transpose(2, 0, 1))
    axes.add_collection(PolyCollection(boxes, facecolors=[colours[c] for c in label]))
    axes.set_ylim(0, 1.05 * top.max())
    axes.set_ylabel("samples")


def _dots(axes: Axes, counts: Ints, colours: list[Any], size: tuple[float, float]) -> None:
    """A dot for each number that is not 0, on axes of `size` in inches; the largest share fills its place."""
    client, row = np.nonzero(counts)
    across, down = 0.85 * 72 * np.array(size) / counts.shape  # points between neighbouring dots
    share = (counts / counts.sum(axis=1, keepdims=True))[client, row]
    area = 0.8 * max(across, 6) * max(down, 6) * share / share.max()
    axes.scatter(client, row, s=np.maximum(area, 2), color=[colours[r] for r in row], linewidths=0)


def _rows(axes: Axes, names: list[str], what: str) -> None:
    axes.set_ylim(len(names) - 0.3, -0.7)
    if len(names) <= 30:
        axes.set_yticks(range(len(names)), names)
    else:
        axes.set_ylabel(what)


def _plain(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=20, steps=[1, 2, 5, 10], integer=True))
    axes.grid(axis="y", color="0.93")
    axes.set_axisbelow(True)
