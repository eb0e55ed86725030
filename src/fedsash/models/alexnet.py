"""AlexNet with GroupNorm, as IMA trains it on PACS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from torch import nn
from typing_extensions import Doc

from ..settings.errors import check_choice
from .parts import image, network


def alexnet_gn(
    shape: Sequence[int],
    classes: int,
    variant: Annotated[
        Literal["code", "paper"], Doc('whose network: that of the published "code", or of the "paper"')
    ] = "code",
) -> nn.Module:
    """AlexNet with GroupNorm and without dropout (IMA, PACS): 12,042,311 parameters for 7 classes.

        conv 11x11/4 64, GN -> ReLU -> maxpool 3/2 -> conv 5x5 192, GN -> ReLU -> maxpool 3/2
        -> conv 3x3 384, GN -> ReLU -> conv 3x3 256, GN -> ReLU -> conv 3x3 256, GN -> ReLU -> maxpool 3/2
        -> average pool to 6x6 -> flatten -> fc 1024 -> ReLU -> fc 128 -> ReLU (the feature) -> fc classes

    Images may have any size from 63 pixels; 224 pixels give 6x6 without the average pool. GroupNorm has 32 groups. This
    is the network of the published code. The paper has two groups and fc 4096 and 512: `variant = "paper"`, 42,326,087
    parameters. PyTorch's default initialisation. Raises `SettingError` for smaller images or another variant.
    """
    channels, _, _ = image("alexnet_gn", shape, smallest=63)
    check_choice("alexnet_gn.variant", variant, "code", "paper")
    groups, hidden, feature = (32, 1024, 128) if variant == "code" else (2, 4096, 512)
    features = nn.Sequential(
        *(nn.Conv2d(channels, 64, 11, stride=4, padding=2), nn.GroupNorm(groups, 64), nn.ReLU()),
        nn.MaxPool2d(3, stride=2),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.GroupNorm(groups, 192), nn.ReLU()),
        nn.MaxPool2d(3, stride=2),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.GroupNorm(groups, 384), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.GroupNorm(groups, 256), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.GroupNorm(groups, 256), nn.ReLU()),
        nn.MaxPool2d(3, stride=2),
        *(nn.AdaptiveAvgPool2d(6), nn.Flatten()),
        *(nn.Linear(256 * 6 * 6, hidden), nn.ReLU()),
        *(nn.Linear(hidden, feature), nn.ReLU()),
    )
    return network(features, nn.Linear(feature, classes))
