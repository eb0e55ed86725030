"""Common colour scales of fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from .picture import Field, Grid, Layer, Panel, Picture

LEVELS = 18
INNER = 0.9
"""The share of all values that lies within the levels. Far from the models, the loss can be very large."""


def common(pictures: Sequence[Picture]) -> list[Picture]:
    """The pictures with levels for their fields that have none yet, the same for all fields of one label."""
    values_by_label: dict[str, list[Grid]] = {}
    for picture in pictures:
        for panel in picture.panels:
            for layer in panel.layers:
                if _without_levels(layer):
                    values_by_label.setdefault(layer.label, []).append(layer.values)
    scales = {label: levels(values) for label, values in values_by_label.items()}

    def scaled_layer(layer: Layer) -> Layer:
        if not _without_levels(layer):
            return layer
        return replace(layer, levels=scales[layer.label])

    def scaled(panel: Panel) -> Panel:
        return replace(panel, layers=[scaled_layer(layer) for layer in panel.layers])

    return [replace(picture, panels=[scaled(panel) for panel in picture.panels]) for picture in pictures]


def _without_levels(layer: Layer) -> TypeGuard[Field]:
    return isinstance(layer, Field) and not layer.levels


def levels(values: Sequence[Grid]) -> list[float]:
    """Levels from the lowest value to the `INNER` quantile. They are closer to each other at low values."""
    numbers = np.concatenate([np.array(grid, dtype=np.float64).ravel() for grid in values])
    finite = numbers[np.isfinite(numbers)]
    low = 0.0
    high = 1.0
    if len(finite):
        low = float(finite.min())
        high = float(np.quantile(finite, INNER))
    high = max(high, low + 1e-6 * max(1.0, abs(low)))  # levels must ascend
    steps: NDArray[np.float64] = np.linspace(0, 1, LEVELS + 1) ** 1.6
    ascending: list[float] = (low + (high - low) * steps).tolist()
    return ascending
