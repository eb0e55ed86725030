"""Parts that several networks have."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from ..settings.errors import check


def network(features: nn.Module, classifier: nn.Module) -> nn.Sequential:
    """A network of two parts, by these names: averages and personal parts may be one of them."""
    return nn.Sequential(OrderedDict(features=features, classifier=classifier))


def max_of_relu(size: int) -> tuple[nn.MaxPool2d, nn.ReLU]:
    """ReLU -> maxpool in the other order: the same numbers and gradients, and ReLU has only a size^2-th to do."""
    return nn.MaxPool2d(size), nn.ReLU()


def image(model: str, shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """`shape` as (channels, height, width). Raises `SettingError` if it is not one, or a side is below `smallest`."""
    valid = len(shape) == 3 and shape[0] > 0 and min(shape[1:]) >= smallest
    right = f"must be (channels, height, width) with sides of at least {smallest} pixels"
    check(valid, f"{model}: shape of one input", tuple(shape), right)
    channels, height, width = shape
    return channels, height, width
