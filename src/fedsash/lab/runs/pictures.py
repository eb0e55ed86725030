"""The pictures in a run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..pictures.curves import curves
from ..pictures.network import accuracy, link, timeline
from ..pictures.paper import draw
from ..records import accuracies


def draw_curves(folder: Path, history: list[dict[str, Any]], target: float, broadcast_start: int | None) -> None:
    """Draw `curves.png` if there was an evaluation on a test set."""
    if models := accuracies(history):
        draw(curves(models, target=target, broadcast_start=broadcast_start), folder / "curves.png")


def draw_timeline(folder: Path, found: Mapping[str, Any], history: list[dict[str, Any]], target: float) -> None:
    """Draw the pictures of a run on a network."""
    draw(timeline(found), folder / "timeline.png")
    draw(link({folder.name: found}), folder / "link.png")
    if models := accuracies(history):
        moments = {row["round"]: row for row in history if row["split"] == "test"}
        draw(accuracy(models, moments, target), folder / "accuracy.png")
