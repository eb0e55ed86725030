"""Common colour scales of fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from .picture import Field, Grid, Layer, Panel, Picture

LEVELS = 18
INNER = 0.9
"""The share of all values that lies within the levels. Far from the models, the loss can be very large."""


def common(pictures: Sequence[Picture]) -> list[Picture]:
    """The pictures with levels for their fields that have none yet, the same for all fields of one label."""
    fields: dict[str, list[Grid]] = {}
    for field in (layer for picture in pictures for panel in picture.panels for layer in panel.layers):
        if _bare(field):
            fields.setdefault(field.label, []).append(field.values)
    scales = {label: levels(values) for label, values in fields.items()}

    def scaled(panel: Panel) -> Panel:
        layers = [replace(of, levels=scales[of.label]) if _bare(of) else of for of in panel.layers]
        return replace(panel, layers=layers)

    return [replace(picture, panels=[scaled(panel) for panel in picture.panels]) for picture in pictures]


def _bare(layer: Layer) -> TypeGuard[Field]:
    return isinstance(layer, Field) and not layer.levels


def levels(values: Sequence[Grid]) -> list[float]:
    """Levels from the lowest value to the `INNER` quantile. They are closer to each other at low values."""
    known = np.concatenate([np.array(grid, dtype=np.float64).ravel() for grid in values])
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(np.quantile(known, INNER))) if len(known) else (0.0, 1.0)
    high = max(high, low + 1e-6 * max(1.0, abs(low)))
    found: list[float] = (low + (high - low) * np.linspace(0, 1, LEVELS + 1) ** 1.6).tolist()
    return found
