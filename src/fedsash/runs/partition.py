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
HEAD = 9
"""A longer name of a class is cut at the head of its column."""
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
    names = _class_names(data)
    columns = _client_columns(data)
    if 0 < data.classes <= COLUMNS:
        columns.append(_class_columns(counts, names))
    elif data.classes:
        columns.append(_largest_classes(counts, names))
    lines = ["  ".join(cells) for cells in zip(*columns, strict=True)]
    if len(counts) > ROWS:
        heads = lines[:1]
        first = lines[1 : 1 + ROWS // 2]
        last = lines[-ROWS // 2 :]
        lines = [*heads, *first, "   ...", *last]
    return "\n".join([*_summary(data, counts), "", *lines])


def record(data: FederatedData) -> dict[str, Any]:
    """Clients x labels as in `partition.json`: `classes`, the names of the classes, `counts` `[N, classes]`, and
    `sizes` `[N]`, the clients' numbers of samples, which may have several labels each.

    If the clients have names, there are also `clients`, their names.

    If labels are no classes, all samples count as one class, `samples`.

    If samples have domains, there are also `domains`, their names, and `domain_counts` `[N, domains]`.

    Of a table there are `features`, the names of its columns, and `scales`, the mean and the deviation of each before
    it was standardised.
    """
    content = {"classes": _class_names(data), "counts": data.counts().tolist(), "sizes": data.sizes.tolist()}
    if data.feature_names:
        content["features"] = list(data.feature_names)
    if data.feature_scales:
        content["scales"] = [list(scale) for scale in data.feature_scales]
    if data.client_names:
        content["clients"] = list(data.client_names)
    if domains := _domains(data):
        counts, names = domains
        content["domains"] = names
        content["domain_counts"] = counts.tolist()
    return content


def _class_names(data: FederatedData) -> list[str]:
    """The names of the classes. Labels that are no classes have one column for all samples."""
    if not data.classes:
        return ["samples"]
    return list(data.label_names) or [str(c) for c in range(data.classes)]


def _domains(data: FederatedData) -> tuple[Ints, list[str]] | None:
    """The number of samples of each domain for each client, `[N, domains]`, and the names. None without domains."""
    if data.train.domain is None:
        return None
    domain = data.train.domain.cpu().numpy()
    names = list(data.domain_names) or [str(number) for number in range(domain.max() + 1)]
    counts = np.stack([np.bincount(domain[indices], minlength=len(names)) for indices in data.clients])
    return counts, names


def _summary(data: FederatedData, counts: Ints) -> list[str]:
    sizes = data.sizes
    times = np.bincount(np.concatenate(data.clients), minlength=len(data.train))
    classes = f"{data.classes} classes, " if data.classes else ""
    lines = [
        f"{len(sizes):,} clients, {classes}{len(data.train):,} training samples",
        f"samples a client: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
    ]
    if data.classes:
        lines.append(_held_by_client("classes", counts))
        if len(sizes) > FEW and counts.any():
            lines.append(_concentration(counts, _class_names(data)))
    if domains := _domains(data):
        domain_counts, _ = domains
        lines.append(_held_by_client("domains", domain_counts))
    if (times != 1).any():
        lines.append(f"not used: {(times == 0).sum():,} samples; used more than once: {(times > 1).sum():,}")
    return lines


def _held_by_client(what: str, counts: Ints) -> str:
    """How many of the classes, or domains, each client has samples of."""
    held = (counts > 0).sum(axis=1)
    return f"{what} a client: {held.min()} to {held.max()}, mean {held.mean():.2f}"


def _concentration(counts: Ints, names: list[str]) -> str:
    """How much of a class the clients hold that have most of it: of the most even class, and of the least even one."""
    classes = np.flatnonzero(counts.sum(axis=0))
    counts = counts[:, classes]
    shares = np.sort(counts, axis=0)[-FEW:].sum(axis=0) / counts.sum(axis=0)

    def share_of(i: Any) -> str:
        return f"{shares[i]:.0%} ({printable(names[classes[i]])})"

    low = share_of(shares.argmin())
    high = share_of(shares.argmax())
    return f"a class's {FEW} largest holders have {low} to {high} of it"


def _client_columns(data: FederatedData) -> list[list[str]]:
    """The columns that identify a client, each with its head: its name or number, its samples, its domains."""
    if data.client_names:
        names = [shortened(printable(name), NAME) for name in data.client_names]
        width = max(map(len, ["client", *names]))
        clients = [f"{name:<{width}}" for name in names]
    else:
        width = len("client")
        clients = [f"{number:>{width}}" for number in range(len(data.clients))]
    columns = [[f"{'client':<{width}}", *clients]]
    columns.append(["samples", *(f"{size:>7,}" for size in data.sizes)])
    if domains := _domains(data):
        columns.append(_domain_column(*domains))
    return columns


def _domain_column(counts: Ints, names: list[str]) -> list[str]:
    """Each client's largest domain, and the number of its other domains."""
    cells = []
    for row in counts:
        others = int((row > 0).sum()) - 1
        cell = names[row.argmax()]
        if others > 0:
            cell += f" +{others}"
        cells.append(cell)
    column = ["domain", *cells]
    width = max(map(len, column))
    return [f"{cell:<{width}}" for cell in column]


def _class_columns(counts: Ints, names: list[str]) -> list[str]:
    """A line with a column for each class: the head, then each client's samples, with a dot for none."""
    columns = []
    for name, column in zip(names, counts.T, strict=True):
        head = name if len(name) <= HEAD else f"{name[: HEAD - 1]}…"
        width = max(len(head), len(f"{column.max():,}"))
        numbers = [f"{count:,}" if count else "·" for count in column]
        columns.append([f"{cell:>{width}}" for cell in (head, *numbers)])
    return ["  ".join(cells) for cells in zip(*columns, strict=True)]


def _largest_classes(counts: Ints, names: list[str]) -> list[str]:
    """The head, then each client's number of classes, and those of which it has most samples."""
    lines = ["classes  largest classes"]
    for row in counts:
        held = int((row > 0).sum())
        largest = np.argsort(-row, kind="stable")[: min(held, LARGEST)]
        text = ", ".join(f"{names[c]}: {row[c]:,}" for c in largest)
        if held > LARGEST:
            text += ", …"
        lines.append(f"{held:>7}  {text}")
    return lines
