"""The pictures in a run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...evaluation import Curves
from ...tasks import Criterion
from .. import files
from ..client_results import CLIENTS
from ..pictures import network
from ..pictures.clients import clients
from ..pictures.paper import draw


def draw_clients(folder: Path, criterion: Criterion) -> None:
    """Draw `clients.png` if clients scored models."""
    if files.there(folder / CLIENTS):
        draw(clients(files.table(folder / CLIENTS), criterion), folder / "clients.png")


def draw_timeline(folder: Path, timeline: Mapping[str, Any], history: list[dict[str, Any]], found: Curves) -> None:
    """Draw the pictures of a run on a network."""
    draw(network.timeline(timeline), folder / "timeline.png")
    draw(network.link({folder.name: timeline}), folder / "link.png")
    if found:
        moments = {row["round"]: row for row in history if row["split"] == found.split}
        draw(network.progress(found, moments), folder / "progress.png")
