"""A partition as numbers and as a table: clients x labels, and clients x domains."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.federated import FederatedData
from ..settings.errors import printable, shortened
from ..vector.arrays import Ints

ROWS = 20
"""The largest number of clients in a table. If there are more, it shows the first 10 and the last 10."""
NAME = 24
"""A longer name of a client is cut."""
COLUMNS = 12
"""The largest number of classes with a column each. If there are more, a row names its client's `LARGEST` largest."""
LARGEST = 5
FEW = 3
"""So many clients may hold most of a class: the summary says how much of it."""


def table(data: FederatedData) -> str:
    """Clients x labels as text: a summary, then one row for each client with its number of samples of each class.

    If labels are no classes, a row only has the number of all samples.
    If samples have domains, a row also names the client's largest domain and the number of its other domains.
    """
    counts = data.counts()
    names = _names(data)
    columns = _clients(data)
    if data.classes:
        columns.append(_columns(counts, names) if data.classes <= COLUMNS else _largest(counts, names))
    rows = ["  ".join(row) for row in zip(*columns, strict=True)]
    if len(counts) > ROWS:
        rows = [*rows[: 1 + ROWS // 2], "   ...", *rows[-ROWS // 2 :]]
    return "\n".join([*_summary(data, counts), "", *rows])


def record(data: FederatedData) -> dict[str, Any]:
    """Clients x labels as in `partition.json`: `classes`, the names of the classes, `counts` `[N, classes]`, and
    `sizes` `[N]`, the clients' numbers of samples, which may have several labels each.

    If the clients have names, there are also `clients`, their names.

    If labels are no classes, all samples count as one class, `samples`.

    If samples have domains, there are also `domains`, their names, and `domain_counts` `[N, domains]`.

    Of a table there are `features`, the names of its columns, and `scales`, the mean and the deviation of each before
    it was standardised.
    """
    found = {"classes": _names(data), "counts": data.counts().tolist(), "sizes": data.sizes.tolist()}
    if data.feature_names:
        found["features"] = list(data.feature_names)
    if data.feature_scales:
        found["scales"] = [list(scale) for scale in data.feature_scales]
    if data.client_names:
        found["clients"] = list(data.client_names)
    if domains := _domains(data):
        found |= {"domains": domains[1], "domain_counts": domains[0].tolist()}
    return found


def _names(data: FederatedData) -> list[str]:
    """The names of the classes. Labels that are no classes have one column for all samples."""
    if not data.classes:
        return ["samples"]
    return list(data.label_names) or [str(c) for c in range(data.classes)]


def _domains(data: FederatedData) -> tuple[Ints, list[str]] | None:
    """The number of samples of each domain for each client, `[N, domains]`, and the names. None without domains."""
    if data.train.domain is None:
        return None
    domain = data.train.domain.cpu().numpy()
    names = list(data.domain_names) or [str(d) for d in range(domain.max() + 1)]
    return np.stack([np.bincount(domain[client], minlength=len(names)) for client in data.clients]), names


def _summary(data: FederatedData, counts: Ints) -> list[str]:
    sizes = data.sizes
    times = np.bincount(np.concatenate(data.clients), minlength=len(data.train))
    classes = f"{data.classes} classes, " if data.classes else ""
    lines = [
        f"{len(sizes):,} clients, {classes}{len(data.train):,} training samples",
        f"samples a client: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
    ]
    if data.classes:
        lines.append(_held("classes", counts))
        if len(sizes) > FEW and counts.any():
            lines.append(_concentrated(counts, _names(data)))
    if domains := _domains(data):
        lines.append(_held("domains", domains[0]))
    if (times != 1).any():
        lines.append(f"not used: {(times == 0).sum():,} samples; used more than once: {(times > 1).sum():,}")
    return lines


def _held(what: str, counts: Ints) -> str:
    held = (counts > 0).sum(axis=1)
    return f"{what} a client: {held.min()} to {held.max()}, mean {held.mean():.2f}"


def _concentrated(counts: Ints, names: list[str]) -> str:
    """How much of a class the clients hold that have most of it: of the most even class, and of the least even one."""
    there = np.flatnonzero(counts.sum(axis=0))
    shares = np.sort(counts[:, there], axis=0)[-FEW:].sum(axis=0) / counts[:, there].sum(axis=0)
    low, high = (f"{shares[at]:.0%} ({printable(names[there[at]])})" for at in (shares.argmin(), shares.argmax()))
    return f"a class's {FEW} largest holders have {low} to {high} of it"


def _clients(data: FederatedData) -> list[list[str]]:
    """The columns that identify a client, each with its head."""
    known = [shortened(printable(name), NAME) for name in data.client_names]
    width = max(map(len, ("client", *known)))
    named = [f"{name:<{width}}" for name in known] or [f"{i:>{width}}" for i in range(len(data.clients))]
    columns = [[f"{'client':<{width}}", *named]]
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


def _largest(counts: Ints, names: list[str]) -> list[str]:
    lines = ["classes  largest classes"]
    for row in counts:
        held = int((row > 0).sum())
        top = np.argsort(-row, kind="stable")[: min(held, LARGEST)]
        rest = ", …" if held > LARGEST else ""
        lines.append(f"{held:>7}  " + ", ".join(f"{names[c]}: {row[c]:,}" for c in top) + rest)
    return lines
