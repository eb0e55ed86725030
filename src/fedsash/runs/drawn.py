"""The pictures in a run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data.federated import FederatedData
from ..evaluation import Curves, History
from ..settings.errors import check
from ..tasks import Criterion
from .client_results import CLIENTS
from .partition import record
from .pictures import Picture, network
from .pictures.clients import clients
from .pictures.paper import draw
from .pictures.partition import partition
from .summaries import run_table


def plot_clients(data: FederatedData) -> Picture:
    """The picture of a partition: each client's samples, and below them a dot for each class that it holds.

    A dot's area is the class's share of the client's samples. A notebook shows the picture;
    `plot_clients(data).save("clients.pdf")` writes it. `fedsash partition` draws the same one. Raises `SettingError`
    for other things than a `FederatedData`, and `LibraryError`, when it is drawn, without matplotlib.
    """
    check(isinstance(data, FederatedData), "data", data, "must be a FederatedData: data.partition(...) gives one")
    return partition(record(data))


def draw_clients(folder: Path, criterion: Criterion) -> None:
    """Draw `clients.png` if clients scored models."""
    content = run_table(folder / CLIENTS)
    if content is not None:
        draw(clients(content, criterion), folder / "clients.png")


def draw_timeline(folder: Path, timeline: Mapping[str, Any], history: History, curves: Curves) -> None:
    """Draw the pictures of a run on a network."""
    draw(network.timeline(timeline), folder / "timeline.png")
    draw(network.link({folder.name: timeline}), folder / "link.png")
    if curves:
        draw(network.progress(curves, history.network), folder / "progress.png")
